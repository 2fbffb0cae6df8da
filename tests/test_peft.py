"""Adapters as PEFT folders, both ways, and every fault of a folder that is read."""

import json
import warnings

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agon_jax import models
from agon_jax.models.lora import insert, projections
from agon_jax.models.peft import export_adapter, import_adapter, key_prefix, lora_scale

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
RUN = dict(rank=4, alpha=8.0, rslora=False)
Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def adapter_of(sizes, rank=4):
    """{path: (in, out)} -> an adapter of NumPy arrays, no two of them equal."""
    rng, adapter = np.random.default_rng(0), {}
    for path, (fan_in, fan_out) in sizes.items():
        pair = {"a": rng.normal(size=(fan_in, rank)), "b": rng.normal(size=(rank, fan_out))}
        insert(adapter, tuple(path.split("/")), {name: x.astype(np.float32) for name, x in pair.items()})
    return adapter


SIZES = {f"layers_{i}/{name}": size for i in range(2) for name, size in {
    "self_attn/q_proj": (6, 10), "self_attn/v_proj": (6, 4), "mlp/down_proj": (9, 6)}.items()}  # fmt: skip
MODULES = [*SIZES, *(f"layers_{i}/mlp/up_proj" for i in range(2))]  # the base has more than is adapted


def write(folder, adapter, modules=MODULES, *, alpha=8.0, rslora=False, prefix="model."):
    export_adapter(folder, adapter, modules, alpha=alpha, rslora=rslora, base="some/base", prefix=prefix)
    return json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)


def test_scale():
    """32 / 16 = 2; with rsLoRA 32 / sqrt(16) = 8. Reading alpha alone would give 32 for both."""
    assert lora_scale(16, 32.0, False) == 2.0
    assert lora_scale(16, 32.0, True) == 8.0


def test_keys_and_shapes_at_the_sizes_of_qwen3_4b(tmp_path):
    """32 heads of 128 on a hidden size of 2560: A [8, 2560], B [4096, 8]. Ours, untransposed, would be
    [2560, 8] and [8, 4096], which PEFT refuses."""
    sizes = {"layers_0/self_attn/q_proj": (2560, 4096), "layers_35/mlp/down_proj": (9728, 2560)}
    adapter = adapter_of(sizes, rank=8)
    config, tensors = write(tmp_path / "new" / "folder", adapter, list(sizes))
    down = "base_model.model.model.layers.35.mlp.down_proj"
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        f"{Q_PROJ}.lora_A.weight": (8, 2560), f"{Q_PROJ}.lora_B.weight": (4096, 8),
        f"{down}.lora_A.weight": (8, 9728), f"{down}.lora_B.weight": (2560, 8),
    }  # fmt: skip
    pair = adapter["layers_0"]["self_attn"]["q_proj"]
    assert tensors[f"{Q_PROJ}.lora_A.weight"][3, 700] == pair["a"][700, 3]
    assert tensors[f"{Q_PROJ}.lora_B.weight"][4000, 5] == pair["b"][5, 4000]
    fields = ("peft_type", "task_type", "r", "lora_alpha", "use_rslora", "bias", "base_model_name_or_path")
    assert {name: config[name] for name in fields} == {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 8.0, "use_rslora": False,
        "bias": "none", "base_model_name_or_path": "some/base",
    }  # fmt: skip


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "qwen3_5", "gemma3_text", "gemma4_text"])
def test_prefix_of_a_text_model(model_type):
    """Qwen3.5's multimodal files load as a text model; with `language_model.` in the keys PEFT would
    find no module and leave the base as it is."""
    assert key_prefix(model_type) == "model."


@pytest.mark.parametrize("model_type", ["gemma3", "gemma4"])
def test_prefix_of_a_multimodal_model(model_type):
    assert key_prefix(model_type) == "model.language_model."


def targets(folder, adapter, prefix="model."):
    return write(folder, adapter, prefix=prefix)[0]["target_modules"]


def test_targets_are_short_where_that_means_the_same_layers(tmp_path):
    """All q_proj, v_proj and down_proj of both layers; the base's up_proj is not among them."""
    assert targets(tmp_path, adapter_of(SIZES)) == ["down_proj", "q_proj", "v_proj"]


@pytest.mark.parametrize("left_out", ["layers_1/self_attn/q_proj", "layers_0/mlp/down_proj"])
def test_targets_are_whole_names_where_some_layers_are_left_out(tmp_path, left_out):
    """With `q_proj` as a target PEFT would also adapt the layer that has no weights in the file."""
    kept = {path: size for path, size in SIZES.items() if path != left_out}
    wanted = ["model." + path.replace("layers_", "layers.").replace("/", ".") for path in kept]
    assert targets(tmp_path, adapter_of(kept)) == sorted(wanted)


def test_targets_of_a_multimodal_model_are_always_whole_names(tmp_path):
    """Its vision tower has a q_proj, a v_proj and sometimes a down_proj of its own."""
    prefix = "model.language_model."
    config, tensors = write(tmp_path, adapter_of(SIZES), prefix=prefix)
    wanted = sorted(prefix + p.replace("layers_", "layers.").replace("/", ".") for p in SIZES)
    assert config["target_modules"] == wanted
    assert {name.rsplit(".lora_", 1)[0] for name in tensors} == {f"base_model.model.{x}" for x in wanted}


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model.", ""])
def test_every_prefix_is_read_back(tmp_path, prefix):
    """Bit for bit, whichever class of transformers the adapter was made for."""
    adapter = adapter_of(SIZES)
    write(tmp_path, adapter, prefix=prefix)
    back = import_adapter(tmp_path, adapter, **RUN)
    leaf = lambda tree, path, name: tree[path[0]][path[1]][path[2]][name]
    for path in SIZES:
        for name in "ab":
            np.testing.assert_array_equal(*(leaf(t, path.split("/"), name) for t in (back, adapter)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_read_as_float32(tmp_path, dtype):
    """1.5 is exact in both. Kept in bfloat16 the optimizer's small steps would be rounded away."""
    adapter = adapter_of(SIZES)
    _, tensors = write(tmp_path, adapter)
    save_file({name: np.full_like(x, 1.5, dtype) for name, x in tensors.items()}, str(tmp_path / WEIGHTS))
    pair = import_adapter(tmp_path, adapter, **RUN)["layers_1"]["mlp"]["down_proj"]
    assert pair["a"].dtype == pair["b"].dtype == np.float32
    assert set(np.unique(pair["a"])) == set(np.unique(pair["b"])) == {1.5}


# --- with the real peft -------------------------------------------------------------------------


def torch_logits(hf, ids):
    import torch

    with torch.no_grad():
        return hf(torch.tensor(ids)[None]).logits[0].numpy()


IDS = np.random.default_rng(0).integers(0, 61, 12)


def test_peft_adapts_only_the_layers_in_the_folder(qwen3, noisy_adapter, tmp_path):
    """Targets matched q_proj of layer 0 alone: one module is adapted, with `q_proj` it would be two.
    Nothing is missing, the logits move by far more than rounding, and as ours do."""
    from peft import PeftModel

    hf, base = qwen3()
    model, params = models.load(base, dtype="float32")
    adapter = noisy_adapter(params, targets=("layers_0/.*q_proj",), spread=0.5)
    export_adapter(
        tmp_path / "adapter", adapter, list(projections(params)), alpha=8.0, rslora=False, base="b"
    )
    plain = torch_logits(hf, IDS)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*adapter keys.*")  # missing ones are but a warning
        adapted = PeftModel.from_pretrained(hf, str(tmp_path / "adapter")).eval()
    matrices = [name for name, _ in adapted.named_modules() if name.endswith("lora_A")]
    assert matrices == ["base_model.model.model.layers.0.self_attn.q_proj.lora_A"]
    theirs = torch_logits(adapted, IDS)
    assert np.abs(theirs - plain).max() > 0.3
    ours = model.clone(lora_scale=2.0).apply({"params": params, "lora": adapter}, IDS[None])[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("rslora, scale", [(False, 2.0), (True, 4.0)])
def test_a_folder_that_peft_wrote(qwen3, noisy_adapter, tmp_path, rslora, scale):
    """r 4 and alpha 8: scale 2, with rsLoRA 8 / sqrt(4) = 4. PEFT leaves B at zero, so it is made
    random first. Without the adapter, or with the other kind's scale, logits are off by 0.5 and more."""
    import torch
    from peft import LoraConfig, get_peft_model

    hf, base = qwen3()
    plain = torch_logits(hf, IDS)
    config = LoraConfig(r=4, lora_alpha=8, use_rslora=rslora, target_modules=LINEAR, task_type="CAUSAL_LM")
    adapted = get_peft_model(hf, config).eval()
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.15)
    adapted.save_pretrained(str(tmp_path / "adapter"))
    theirs = torch_logits(adapted, IDS)
    assert np.abs(theirs - plain).max() > 0.5

    model, params = models.load(base, dtype="float32")
    like = noisy_adapter(params)  # every linear layer, rank 4
    adapter = import_adapter(tmp_path / "adapter", like, rank=4, alpha=8.0, rslora=rslora)
    apply = lambda scale: model.clone(lora_scale=scale).apply({"params": params, "lora": adapter}, IDS[None])
    np.testing.assert_allclose(apply(scale)[0], theirs, atol=1e-4)
    assert np.abs(apply(6.0 - scale)[0] - theirs).max() > 0.5


# --- faults -------------------------------------------------------------------------------------


def with_field(**fields):
    def apply(folder):
        config = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(config | fields))

    return apply


def with_tensors(change):
    def apply(folder):
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, str(folder / WEIGHTS))

    return apply


def drop_layer(tensors):
    for matrix in "AB":
        del tensors[f"base_model.model.model.layers.1.mlp.down_proj.lora_{matrix}.weight"]


def add_layer(tensors):
    for matrix in "AB":
        tensors[f"base_model.model.model.layers.2.mlp.up_proj.lora_{matrix}.weight"] = np.ones((4, 4))


def pickle_only(folder):
    (folder / WEIGHTS).unlink()
    (folder / "adapter_model.bin").write_bytes(b"\x80\x04.")


def cut(folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-50])


A, B = f"{Q_PROJ}.lora_A.weight", f"{Q_PROJ}.lora_B.weight"
FAULTS = {
    "no config": (lambda f: (f / CONFIG).unlink(), [f"no {CONFIG}", "not a PEFT folder"]),
    "config is not JSON": (lambda f: (f / CONFIG).write_text("{r: 4}"), [CONFIG, "not valid JSON"]),
    "config is not text": (lambda f: (f / CONFIG).write_bytes(b"\xff\xfe"), [CONFIG, "not valid JSON"]),
    "config is a list": (lambda f: (f / CONFIG).write_text("[]"), [CONFIG, "no JSON object"]),
    "pickle only": (pickle_only, [f"no {WEIGHTS}", "adapter_model.bin", "never loaded"]),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), [f"no {WEIGHTS}"]),
    "weights cut short": (cut, [WEIGHTS, "damaged or cut short"]),
    "weights empty": (lambda f: (f / WEIGHTS).write_bytes(b""), [WEIGHTS, "damaged or cut short"]),
    "other rank": (with_field(r=8), [CONFIG, "r=8", "lora.rank=4", "--config.lora.rank=8"]),
    "other alpha": (
        with_field(lora_alpha=16),
        [CONFIG, "lora_alpha=16", "lora.alpha=8", "--config.lora.alpha=16"],
    ),
    "other kind of scale": (
        with_field(use_rslora=True),
        [CONFIG, "use_rslora=True", "lora.rslora=False", "--config.lora.rslora=True"],
    ),
    "not LoRA": (with_field(peft_type="IA3"), [CONFIG, "peft_type='IA3'", "'LORA'"]),
    "DoRA": (with_field(use_dora=True), [CONFIG, "use_dora=True"]),
    "bias": (with_field(bias="lora_only"), [CONFIG, "bias='lora_only'"]),
    "bias of B": (with_field(lora_bias=True), [CONFIG, "lora_bias=True"]),
    "whole modules": (with_field(modules_to_save=["lm_head"]), [CONFIG, "modules_to_save=['lm_head']"]),
    "ranks by layer": (with_field(rank_pattern={"q_proj": 2}), [CONFIG, "rank_pattern={'q_proj': 2}"]),
    "alphas by layer": (with_field(alpha_pattern={"q_proj": 2}), [CONFIG, "alpha_pattern={'q_proj': 2}"]),
    "repeated layers": (with_field(layer_replication=[[0, 2]]), [CONFIG, "layer_replication=[[0, 2]]"]),
    # These two put another matrix in place of W, and PEFT does so again when it reads the folder.
    "PiSSA": (with_field(init_lora_weights="pissa"), [CONFIG, "init_lora_weights='pissa'"]),
    "OLoRA": (with_field(init_lora_weights="olora"), [CONFIG, "init_lora_weights='olora'"]),
    "layer missing": (
        with_tensors(drop_layer),
        [WEIGHTS, "has no adapter for layers_1/mlp/down_proj", "lora.targets"],
    ),
    "layer too many": (
        with_tensors(add_layer),
        [WEIGHTS, "has one for layers_2/mlp/up_proj", "lora.targets"],
    ),
    "B missing": (
        with_tensors(lambda t: t.pop(B)),
        [WEIGHTS, "lora_B of layers.0.self_attn.q_proj is missing", "[10, 4]"],
    ),
    "A transposed": (
        with_tensors(lambda t: t.update({A: t[A].T})),
        [WEIGHTS, "lora_A of layers.0.self_attn.q_proj has shape [6, 4], wanted [4, 6]"],
    ),
    "A of another rank than the config says": (
        with_tensors(lambda t: t.update({A: t[A][:2]})),
        [WEIGHTS, "lora_A of layers.0.self_attn.q_proj has shape [2, 6], wanted [4, 6]"],
    ),
    "a name with the adapter's in it": (
        with_tensors(lambda t: t.update({f"{Q_PROJ}.lora_A.default.weight": t.pop(A)})),
        [WEIGHTS, f"{Q_PROJ}.lora_A.default.weight", "not a LoRA matrix"],
    ),
    "foreign name": (
        with_tensors(lambda t: t.update({"base_model.model.lm_head.weight": np.ones((2, 2))})),
        [WEIGHTS, "base_model.model.lm_head.weight", "not a LoRA matrix"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_a_folder(tmp_path, fault):
    """Without its fault the folder is read; a fault that passed would train on another adapter than
    the one in the folder."""
    adapter = adapter_of(SIZES)
    write(tmp_path, adapter)
    import_adapter(tmp_path, adapter, **RUN)
    make, fragments = FAULTS[fault]
    make(tmp_path)
    with pytest.raises(ValueError) as error:
        import_adapter(tmp_path, adapter, **RUN)
    for fragment in [str(tmp_path), *fragments]:
        assert fragment in str(error.value)


def test_fields_that_change_nothing(tmp_path):
    """Dropout, the start of A and who made the folder do not concern a trained adapter; a folder of an
    older PEFT lacks most fields."""
    adapter = adapter_of(SIZES)
    write(tmp_path, adapter)
    with_field(lora_dropout=0.1, inference_mode=False, peft_version="0.17.0", bias=None)(tmp_path)
    import_adapter(tmp_path, adapter, **RUN)
    (tmp_path / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
    back = import_adapter(tmp_path, adapter, **RUN)
    np.testing.assert_array_equal(
        back["layers_0"]["mlp"]["down_proj"]["b"], adapter["layers_0"]["mlp"]["down_proj"]["b"]
    )
