"""Hugging Face folders in and out. Every fault in a folder is an error that names what is wrong:
a weight that is skipped stays random, and training on it looks almost normal."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agon_jax import models, sharding
from agon_jax.models import convert

CONFIG = {
    "model_type": "qwen3", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48,
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": False,
    "use_sliding_window": False, "tie_word_embeddings": True,
}  # fmt: skip
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = _, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
Q_NORM, UP = "model.layers.0.self_attn.q_norm.weight", "model.layers.1.mlp.up_proj.weight"


def write(folder, tensors, **config):
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    save_file(tensors, str(folder / SINGLE), metadata={"format": "pt"})


def shard(folder):
    """One file -> two shards and their index."""
    tensors = load_file(folder / SINGLE)
    names = sorted(tensors)
    where = {name: SHARDS[2 * i // len(names)] for i, name in enumerate(names)}
    for file in SHARDS:
        save_file({name: tensors[name] for name in names if where[name] == file}, str(folder / file))
    (folder / INDEX).write_text(json.dumps({"weight_map": where}))
    (folder / SINGLE).unlink()
    return where


@pytest.fixture
def folder(tmp_path, toy):
    model, params = toy()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    convert.save_hf(tmp_path, model, params, np.float32)
    return tmp_path


def load(folder, **options):
    return models.load(str(folder), dtype=jnp.float32, **options)


def assert_trees_equal(got, wanted):
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_round_trip_is_bit_identical(tmp_path, toy, dtype, tied):
    model, params = toy(tie_word_embeddings=tied, dtype=dtype)
    convert.save_hf(tmp_path, model, params, ml_dtypes.bfloat16 if dtype == jnp.bfloat16 else np.float32)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": tied}))
    loaded_model, loaded = models.load(str(tmp_path), dtype=dtype)
    assert loaded_model.config == model.config
    assert_trees_equal(loaded, params)


def test_stored_layout(folder):
    """Hugging Face keeps [out, in]: heads * head_dim = 64, hidden = 32. Ours would be (32, 64)."""
    stored = {name: tensor.shape for name, tensor in load_file(folder / SINGLE).items()}
    layer = {
        "input_layernorm.weight": (32,), "post_attention_layernorm.weight": (32,),
        "self_attn.q_norm.weight": (16,), "self_attn.k_norm.weight": (16,),
        "self_attn.q_proj.weight": (64, 32), "self_attn.k_proj.weight": (32, 32),
        "self_attn.v_proj.weight": (32, 32), "self_attn.o_proj.weight": (32, 64),
        "mlp.gate_proj.weight": (48, 32), "mlp.up_proj.weight": (48, 32), "mlp.down_proj.weight": (32, 48),
    }  # fmt: skip
    assert stored == {
        "model.embed_tokens.weight": (64, 32), "model.norm.weight": (32,),
        **{f"model.layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()},
    }  # fmt: skip


def test_shards_equal_one_file_and_a_stray_file_is_ignored(folder):
    """The index decides. A reader that globs *.safetensors would take the stray zeros."""
    _, wanted = load(folder)
    stray = {name: np.zeros_like(tensor) for name, tensor in load_file(folder / SINGLE).items()}
    shard(folder)
    save_file(stray, str(folder / SINGLE))
    save_file({"model.norm.weight": np.zeros(32, np.float32)}, str(folder / "model-00003.safetensors"))
    _, got = load(folder)
    assert_trees_equal(got, wanted)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", ["absent", "equal", "other"])
def test_head_follows_tie_word_embeddings(tmp_path, toy, tied, head):
    """Embedding [[1, 0], [0, 1], ...], head twice that: tied logits come from the embedding, untied
    from the head. A tied model whose stored head differs has been damaged on its way, and an untied
    one without a head must not fall back to the embedding."""
    model, params = toy(tie_word_embeddings=False)
    convert.save_hf(tmp_path, model, params, np.float32)
    tensors = load_file(tmp_path / SINGLE)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * (2 if head == "other" else 1)
    if head == "absent":
        del tensors["lm_head.weight"]
    write(tmp_path, tensors, tie_word_embeddings=tied)
    if tied and head == "other":
        with pytest.raises(ValueError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
            load(tmp_path)
    elif not tied and head == "absent":
        with pytest.raises(ValueError, match=r"lm_head\.weight is missing"):
            load(tmp_path)
    else:
        loaded, params = load(tmp_path)
        assert ("lm_head" in params) is not tied
        hidden = np.ones((1, 32), np.float32)
        logits = loaded.apply({"params": params}, hidden, method="unembed")
        table = tensors["model.embed_tokens.weight" if tied else "lm_head.weight"]
        np.testing.assert_allclose(logits[0], table.sum(axis=1), rtol=1e-5, atol=1e-5)


def edit_tensors(change):
    """A fault made by editing the tensors of the single file."""

    def apply(folder):
        tensors = load_file(folder / SINGLE)
        change(tensors)
        write(folder, tensors)

    return apply


def shard_then(change):
    """A fault made on a sharded folder."""

    def apply(folder):
        change(folder, shard(folder))

    return apply


def cut(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def drop_from_shard(folder, where):
    path = folder / where[Q_NORM]
    save_file({name: t for name, t in load_file(path).items() if name != Q_NORM}, str(path))


def drop_from_index(folder, where):
    (folder / INDEX).write_text(json.dumps({"weight_map": {n: f for n, f in where.items() if n != Q_NORM}}))


def pickle_only(folder):
    (folder / SINGLE).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


FAULTS = {
    "tensor missing": (edit_tensors(lambda t: t.pop(Q_NORM)), [Q_NORM, "missing"]),
    "tensor of another shape": (
        edit_tensors(lambda t: t.update({UP: np.zeros((32, 48), np.float32)})),
        [SINGLE, UP, "[32, 48]", "[48, 32]"],
    ),
    "tensor without a place": (
        edit_tensors(lambda t: t.update({"model.layers.7.mlp.up_proj.weight": t[UP].copy()})),
        ["model.layers.7.mlp.up_proj.weight", "no place"],
    ),
    "bias that the model lacks": (
        edit_tensors(lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": np.zeros(64, np.float32)})),
        ["model.layers.0.self_attn.q_proj.bias", "no place"],
    ),
    "keys of a layer that is not there": (
        edit_tensors(lambda t: t.update({"model.layers.7.self_attn.k_proj.weight": t[UP].copy()})),
        ["model.layers.7.self_attn.k_proj.weight", "no place"],
    ),
    "quantized tensor": (
        edit_tensors(lambda t: t.update({UP: np.zeros((48, 32), np.int8)})),
        [SINGLE, UP, "dtype I8", "quantized"],
    ),
    "file cut short": (lambda f: cut(f / SINGLE, 100), [SINGLE, "cut short"]),
    "empty file": (lambda f: (f / SINGLE).write_bytes(b""), [SINGLE, "cut short"]),
    "shard absent": (shard_then(lambda f, where: (f / where[UP]).unlink()), [SECOND, "is missing"]),
    "shard cut short": (shard_then(lambda f, where: cut(f / where[UP], 100)), [SECOND, "cut short"]),
    "tensor missing in its shard": (shard_then(drop_from_shard), [Q_NORM, "missing"]),
    "tensor missing in the index": (shard_then(drop_from_index), [Q_NORM, "missing"]),
    "index names an absent file": (
        shard_then(
            lambda f, where: (f / INDEX).write_text(
                json.dumps({"weight_map": where | {UP: "else.safetensors"}})
            )
        ),
        ["else.safetensors", "is missing", UP],
    ),
    "index leads out of the folder": (
        shard_then(
            lambda f, where: (f / INDEX).write_text(
                json.dumps({"weight_map": where | {UP: "../x.safetensors"}})
            )
        ),
        [INDEX, "../x.safetensors", UP],
    ),
    "index is not JSON": (shard_then(lambda f, _: (f / INDEX).write_text("{")), [INDEX, "damaged"]),
    "index without a map": (shard_then(lambda f, _: (f / INDEX).write_text("{}")), [INDEX, "weight_map"]),
    "pickles only": (pickle_only, ["no model.safetensors", "pytorch_model.bin", "never loaded"]),
    "no weights at all": (lambda f: (f / SINGLE).unlink(), ["no model.safetensors"]),
    "no config": (lambda f: (f / "config.json").unlink(), ["no config.json"]),
    "config is not JSON": (lambda f: (f / "config.json").write_text("{a: 1}"), ["config.json", "not valid"]),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), ["config.json", "no JSON object"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_folder(folder, fault):
    make, fragments = FAULTS[fault]
    make(folder)
    with pytest.raises(ValueError) as error:
        load(folder)
    for fragment in fragments:
        assert fragment in str(error.value)


@pytest.mark.parametrize(
    "changes, fragments",
    [
        ({"model_type": "bert"}, ["model_type 'bert'", "qwen3"]),
        ({"model_type": None}, ["model_type None"]),
        ({"attention_bias": True}, ["attention_bias=True"]),
        ({"use_sliding_window": True, "sliding_window": 16}, ["use_sliding_window=True"]),
        ({"hidden_act": "gelu"}, ["hidden_act='gelu'"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ["RoPE scaling 'yarn'"]),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}}, ["RoPE scaling 'linear'"]),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, ["RoPE scaling 'yarn'"]),
        ({"head_dim": 8}, ["k_norm", "[16]", "[8]"]),
    ],
)
def test_config_that_would_change_the_computation(folder, changes, fragments):
    """Ignoring any of these gives a model that runs and is wrong."""
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    with pytest.raises(ValueError) as error:
        load(folder)
    for fragment in fragments:
        assert fragment in str(error.value)


def test_more_ids_than_rows(folder):
    """Indexing past the embedding raises nothing in JAX: it takes the last row."""
    assert load(folder, num_ids=64)[0].num_ids == 64
    with pytest.raises(ValueError, match=r"ids up to 64.*vocab_size=64"):
        load(folder, num_ids=65)


@pytest.mark.parametrize("field", ["vocab_size", "num_hidden_layers", "rms_norm_eps", "rope_theta"])
def test_config_without_a_field(folder, field):
    (folder / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != field}))
    with pytest.raises(ValueError, match=f"lacks the field '{field}'"):
        load(folder)


def test_both_spellings_of_theta(folder):
    """Newer files keep theta in rope_parameters. Falling back to 10000 would move every angle."""
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in CONFIG.items() if k != "rope_theta"}
                   | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})
    )  # fmt: skip
    assert load(folder)[0].config.layers[0].mixer.rope.theta == 1e6


@pytest.mark.parametrize("name", ["./nowhere", "nowhere", "no/such/folder", "/no/such"])
def test_no_such_folder(name):
    with pytest.raises(ValueError, match=f"'{name}': no such folder"):
        models.load(name)


def test_hub_without_a_copy(monkeypatch):
    """The hub's own error becomes one that says what to do; only safe file kinds are asked for."""
    asked = {}

    def unreachable(repo, allow_patterns):
        asked.update(repo=repo, patterns=allow_patterns)
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(ValueError, match=r"'owner/name'.*hub gave no copy.*local folder"):
        models.load("owner/name")
    assert asked["repo"] == "owner/name"
    assert not any(pattern.endswith((".bin", ".pt", ".py", "*")) for pattern in asked["patterns"])


def test_weights_sharded_over_a_mesh(folder):
    """Split as the table says, and still the same model. On (1, 4, 2): q_proj [32, 64] lies in pieces
    of [8, 32]; a replicated one would be [32, 64] on each device."""
    if jax.device_count() != 8:
        pytest.skip("needs eight devices")
    mesh = sharding.make_mesh((1, 4, 2))
    model, params = load(folder, mesh=mesh)
    first = params["layers_0"]
    pieces = {
        name: leaf.sharding.shard_shape(leaf.shape)
        for name, leaf in {
            "embed": params["embed_tokens"], "q": first["self_attn"]["q_proj"]["kernel"],
            "k": first["self_attn"]["k_proj"]["kernel"], "o": first["self_attn"]["o_proj"]["kernel"],
            "up": first["mlp"]["up_proj"]["kernel"], "down": first["mlp"]["down_proj"]["kernel"],
            "norm": params["norm"]["scale"],
        }.items()
    }  # fmt: skip
    assert pieces == {
        "embed": (32, 8), "q": (8, 32), "k": (8, 16), "o": (32, 8), "up": (8, 24), "down": (24, 8),
        "norm": (32,),
    }  # fmt: skip
    _, whole = load(folder)
    ids = jax.device_put(np.arange(16).reshape(8, 2), sharding.sharding_of(mesh)(("rows", None)))
    logits = jax.jit(lambda params, ids: model.apply({"params": params}, ids))
    np.testing.assert_allclose(logits(params, ids), logits(whole, np.asarray(ids)), atol=1e-5)
