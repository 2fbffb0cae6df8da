"""Multimodal checkpoints: the language model is taken out, wherever it lies in the file."""

import json
import warnings

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from agon_jax import models
from agon_jax.models.lora import projections
from agon_jax.models.peft import export_adapter, key_prefix

TEXT = dict(
    vocab_size=61, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    intermediate_size=48, max_position_embeddings=256, initializer_range=0.1, rms_norm_eps=1e-6,
    num_hidden_layers=4, pad_token_id=0, eos_token_id=None, bos_token_id=None,
)  # fmt: skip
WINDOWS = dict(sliding_window=6, layer_types=["sliding_attention", "full_attention"] * 2)
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
KINDS = {
    "Gemma3": dict(
        text_config=TEXT | WINDOWS, vision_config=VISION | dict(image_size=28, patch_size=14),
        mm_tokens_per_image=4, image_token_index=60, boi_token_index=58, eoi_token_index=59),
    "Gemma4": dict(
        text_config=TEXT | WINDOWS | dict(
            num_kv_shared_layers=2, hidden_size_per_layer_input=8, vocab_size_per_layer_input=61,
            global_head_dim=24),
        vision_config=VISION | dict(num_key_value_heads=2, head_dim=8), audio_config=None),
    "Qwen3_5": dict(
        text_config=TEXT | dict(
            linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=12,
            linear_num_key_heads=2, linear_num_value_heads=4),
        vision_config=dict(hidden_size=16, intermediate_size=16, depth=1, num_heads=2, out_hidden_size=32,
                           num_position_embeddings=16),
        image_token_id=57, video_token_id=58, vision_start_token_id=59, vision_end_token_id=60),
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory):
    """(folder of a whole model with its vision tower, ids, the reference's logits of text alone)."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(**KINDS[request.param])
    hf = getattr(transformers, f"{request.param}ForConditionalGeneration")(config).eval().float()
    folder = tmp_path_factory.mktemp(request.param)
    hf.save_pretrained(folder)
    ids = np.random.default_rng(0).integers(1, 50, (1, 12))
    with torch.no_grad():
        wanted = hf(torch.tensor(ids)).logits.numpy()
    assert np.std(wanted) > 0.4
    return folder, ids, wanted


def test_text_logits(saved):
    """Equal to the whole model's on text: 1e-4. A head tied by the outer config but read from the
    inner one would be missing or taken from elsewhere."""
    folder, ids, wanted = saved
    model, params = models.load(folder, dtype="float32")
    logits = jax.jit(lambda params: model.apply({"params": params}, ids))(params)
    np.testing.assert_allclose(logits, wanted, atol=1e-4)


def test_what_is_not_loaded_is_named(saved, tmp_path):
    """Vision and multi-token-prediction tensors are skipped on purpose; an unknown one is an error,
    since a weight that is skipped in silence leaves a model that runs and is wrong."""
    folder, *_ = saved
    tensors = load_file(folder / "model.safetensors")
    skipped = [name for name in tensors if "vision" in name or "visual" in name]
    assert skipped
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    extra = {"mtp.layers.0.mlp.up_proj.weight": np.zeros((2, 2), np.float32)}
    save_file(tensors | extra, str(tmp_path / "model.safetensors"))
    models.load(tmp_path, dtype="float32")
    extra = {"model.language_model.layers.9.mlp.up_proj.weight": np.zeros((2, 2), np.float32)}
    save_file(tensors | extra, str(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match=r"layers\.9\.mlp\.up_proj\.weight has no place in the model"):
        models.load(tmp_path, dtype="float32")


def test_adapter_keys_of_the_class_that_transformers_loads(saved, noisy_adapter, tmp_path):
    """AutoModelForCausalLM keeps Gemma's language model under `model.language_model`, Qwen3.5's under
    `model`. The vision tower has a q_proj too: short target names would adapt it."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder, ids, wanted = saved
    model, params = models.load(folder, dtype="float32")
    adapter = noisy_adapter(params, targets=("layers_1/",), spread=0.1)
    prefix = key_prefix(json.loads((folder / "config.json").read_text())["model_type"])
    export_adapter(
        tmp_path, adapter, list(projections(params)), alpha=4.0, rslora=False, base="", prefix=prefix
    )
    hf = AutoModelForCausalLM.from_pretrained(folder).eval()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*adapter keys.*")
        adapted = PeftModel.from_pretrained(hf, str(tmp_path)).eval()
    with safe_open(str(tmp_path / "adapter_model.safetensors"), "np") as file:
        stored = len(file.keys()) // 2
    assert sum(name.endswith("lora_A") for name, _ in adapted.named_modules()) == stored
    with torch.no_grad():
        theirs = adapted(torch.tensor(ids)).logits.numpy()
    assert np.abs(theirs - wanted).max() > 0.05
    apply = jax.jit(lambda params, lora: model.apply({"params": params, "lora": lora}, ids))
    np.testing.assert_allclose(apply(params, adapter), theirs, atol=1e-4)
