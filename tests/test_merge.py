"""Merged models: W + scale * (A B)^T in the base's own files, everything else as it was."""

import json

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agon_jax import models
from agon_jax.models.lora import insert, leaves
from agon_jax.models.merge import merge_folder

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
UP, DOWN = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"
IDS = np.random.default_rng(0).integers(0, 61, 12)


def adapter_of(**pairs):
    """Adapter of layer 0's MLP: {projection: (a, b)}."""
    adapter = {}
    for name, (a, b) in pairs.items():
        insert(adapter, ("layers_0", "mlp", name), {"a": np.asarray(a), "b": np.asarray(b)})
    return adapter


def merge(base, out, adapter, scale=2.0):
    steps = []
    merge_folder(base, out, adapter, scale, lambda done, total: steps.append((done, total)))
    return steps


def all_tensors(folder):
    return {path.name: load_file(path) for path in sorted(folder.glob("*.safetensors"))}


def assert_same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


@pytest.fixture
def sharded(qwen3):
    """(model, folder) of a random Qwen3 in several files."""
    hf, folder = qwen3(max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) >= 3
    return hf, folder


def test_logits_of_the_merged_folder(sharded, noisy_adapter, tmp_path):
    """In transformers and here: those of base and adapter. Merged with scale 1 in place of 2, or
    not at all, they are off by 0.5 and more."""
    import torch
    from transformers import AutoModelForCausalLM

    _, base = sharded
    model, params = models.load(base, dtype="float32")
    adapter = noisy_adapter(params)
    forward = jax.jit(lambda scale, variables: model.clone(lora_scale=scale).apply(variables, IDS[None])[0])
    with_adapter = {"params": params, "lora": adapter}
    wanted = forward(2.0, with_adapter)
    assert np.abs(forward(2.0, {"params": params}) - wanted).max() > 0.5
    assert np.abs(forward(1.0, with_adapter) - wanted).max() > 0.5

    out = tmp_path / "new" / "merged"
    steps = merge(base, out, adapter)
    files = sorted(path.name for path in base.glob("*.safetensors"))
    assert sorted(path.name for path in out.glob("*.safetensors")) == files
    assert steps == [(i + 1, len(files)) for i in range(len(files))]
    merged, info = AutoModelForCausalLM.from_pretrained(str(out), output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        theirs = merged.eval()(torch.tensor(IDS)[None]).logits[0].numpy()
    np.testing.assert_allclose(theirs, wanted, atol=1e-4)
    np.testing.assert_allclose(
        forward(2.0, {"params": models.load(out, dtype="float32")[1]}), wanted, atol=1e-4
    )


def test_only_adapted_tensors_change(sharded, noisy_adapter, tmp_path):
    """Two q_proj of 24 tensors change, in the files where they were; all others keep their bits, and so do
    index and configs."""
    _, base = sharded
    adapter = noisy_adapter(models.load(base, dtype="float32")[1], targets=("q_proj",))
    merge(base, tmp_path / "out", adapter)
    before, after = all_tensors(base), all_tensors(tmp_path / "out")
    assert {file: set(tensors) for file, tensors in before.items()} == {
        file: set(tensors) for file, tensors in after.items()
    }
    pairs = {f"model.layers.{path[0][-1]}.self_attn.q_proj.weight": ab for path, ab in leaves(adapter)}
    assert len(pairs) == 2
    for file, tensors in before.items():
        for name, value in tensors.items():
            if name not in pairs:
                assert_same_bits(after[file][name], value)
                continue
            a, b = (np.asarray(pairs[name][matrix], np.float64) for matrix in "ab")
            np.testing.assert_allclose(after[file][name], value + 2.0 * (a @ b).T, rtol=1e-5, atol=1e-5)
            assert np.abs(after[file][name] - value).max() > 0.1
    for name in (INDEX, "config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (base / name).read_bytes()


def small_folder(folder, dtype=np.float32, prefix="model.", **more):
    """One file with an embedding and two projections of ones: enough to merge, not to run."""
    folder.mkdir(exist_ok=True)
    named = {"embed_tokens.weight": (8, 2), "layers.0.mlp.up_proj.weight": (3, 2),
             "layers.0.mlp.down_proj.weight": (2, 3)}  # fmt: skip
    tensors = {prefix + name: np.ones(shape, dtype) for name, shape in named.items()} | more
    save_file(tensors, str(folder / SINGLE), metadata={"format": "pt"})
    return folder


def test_the_sum_is_rounded_once(tmp_path):
    """1 + 2 (2^-9 + 2^-18) in bfloat16, whose steps above 1 are 2^-7. The float32 sum
    1 + 2^-8 + 2^-17 lies above the middle of the step: 1.0078125. Rounding A B first drops the
    2^-17, the sum falls on the middle and goes to the even 1.0. A float32 file keeps 1.0039139."""
    tiny = 2**-9 + 2**-18
    adapter = adapter_of(up_proj=(np.full((2, 1), tiny, np.float32), np.ones((1, 3), np.float32)))
    for name, dtype, wanted in (
        ("a", ml_dtypes.bfloat16, 1.0078125), ("b", np.float32, 1 + 2**-8 + 2**-17)
    ):  # fmt: skip
        merge(small_folder(tmp_path / name, dtype), tmp_path / f"{name}_out", adapter)
        tensors = load_file(tmp_path / f"{name}_out" / SINGLE)
        assert all(tensor.dtype == dtype for tensor in tensors.values())
        assert set(np.unique(tensors[UP].astype(np.float64))) == {wanted}
        assert set(np.unique(tensors[DOWN].astype(np.float64))) == {1.0}


def test_layout_of_the_product(tmp_path):
    """A = [1, 0]^T, B = [5, 6, 7], scale 2: the stored [out 3, in 2] gets 10, 12, 14 in its column 0.
    A reshape in place of a transpose gives [[11, 13], [15, 1], [1, 1]]."""
    adapter = adapter_of(up_proj=([[1.0], [0.0]], [[5.0, 6.0, 7.0]]))
    merge(small_folder(tmp_path / "base"), tmp_path / "out", adapter)
    np.testing.assert_array_equal(load_file(tmp_path / "out" / SINGLE)[UP], [[11, 1], [13, 1], [15, 1]])


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model.", ""])
def test_wherever_the_language_model_lies(tmp_path, prefix):
    """And other modalities, of any dtype, come along bit for bit: a vision tower's own up_proj of
    layer 0, which the adapter's name ends like, and a quantized tensor that no float sum may touch."""
    others = {
        "vision_tower.layers.0.mlp.up_proj.weight": np.full((3, 2), 0.3, np.float16),
        "model.visual.x": np.arange(-3, 3, dtype=np.int8),
        "visual.scalar": np.array(0.1, np.float32),
        "visual.nan": np.array([np.nan, np.inf, -0.0], np.float32),
    }
    base = small_folder(tmp_path / "base", prefix=prefix, **others)
    merge(base, tmp_path / "out", adapter_of(up_proj=(np.ones((2, 1)), np.ones((1, 3)))))
    after = load_file(tmp_path / "out" / SINGLE)
    assert set(after) == set(load_file(base / SINGLE))
    for name, value in others.items():
        assert_same_bits(after[name], value)
    assert set(np.unique(after[f"{prefix}layers.0.mlp.up_proj.weight"])) == {3.0}
    assert set(np.unique(after[f"{prefix}layers.0.mlp.down_proj.weight"])) == {1.0}


def test_files_that_come_along(tmp_path):
    """Config, tokenizer and template byte for byte; no pickle and no code."""
    base = small_folder(tmp_path / "base")
    copied = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
              "special_tokens_map.json", "vocab.json", "merges.txt", "tokenizer.model",
              "chat_template.jinja")  # fmt: skip
    left = ("pytorch_model.bin", "model.pt", "modeling_custom.py", "training_args.bin", "weights.h5")
    for i, name in enumerate(copied + left):
        (base / name).write_bytes(b"content %d\r\n\xff" % i)
    (base / "runs.json").mkdir()
    merge(base, tmp_path / "out", adapter_of(up_proj=(np.ones((2, 1)), np.ones((1, 3)))))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*copied, SINGLE}
    for name in copied:
        assert (tmp_path / "out" / name).read_bytes() == (base / name).read_bytes()


def test_a_stray_file_beside_the_shards_is_left_behind(sharded, noisy_adapter, tmp_path):
    """The index decides. Copied along, a stale model.safetensors would win in other readers."""
    _, base = sharded
    save_file({"model.norm.weight": np.zeros(32, np.float32)}, str(base / SINGLE))
    merge(base, tmp_path / "out", noisy_adapter(models.load(base, dtype="float32")[1], targets=("q_proj",)))
    weights = {path.name for path in (tmp_path / "out").glob("*.safetensors")}
    assert weights == set(json.loads((base / INDEX).read_text())["weight_map"].values())


def test_a_layer_that_the_base_lacks(tmp_path):
    """Named before anything is written: skipping it would give half a policy."""
    base = small_folder(tmp_path / "base")
    adapter = adapter_of(up_proj=(np.ones((2, 1)), np.ones((1, 3))))
    adapter["layers_7"] = adapter["layers_0"]
    with pytest.raises(ValueError, match=r"model\.layers\.7\.mlp\.up_proj\.weight is missing"):
        merge(base, tmp_path / "out", adapter)
    assert not (tmp_path / "out").exists()


def test_a_damaged_base(sharded, noisy_adapter, tmp_path):
    _, base = sharded
    adapter = noisy_adapter(models.load(base, dtype="float32")[1], targets=("q_proj",))
    last = sorted(base.glob("*.safetensors"))[-1]
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(ValueError, match=rf"{last.name} is damaged or cut short"):
        merge(base, tmp_path / "out", adapter)
