"""Every family against the reference implementation, in float32, every norm and scalar perturbed.

Fresh norms are all 0 or all 1 and hide a lost or doubled (1 + w); fresh layer scalars and biases
are 1 and hide that they are not applied. All tolerances are 1e-4 at logits with a spread above 1.
"""

import copy
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agon_jax import models, sharding
from agon_jax.logprobs import token_logprobs
from agon_jax.models import empty_cache
from agon_jax.models.lora import projections, stack_adapters
from agon_jax.models.peft import export_adapter, import_adapter
from agon_jax.sample import row_keys, sample
from agon_jax.types import Prompts

COMMON = dict(
    vocab_size=61, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    intermediate_size=48,
    max_position_embeddings=256, initializer_range=0.3, rms_norm_eps=1e-6, attn_implementation="eager",
    eos_token_id=None, bos_token_id=None, pad_token_id=None,
)  # fmt: skip
LINEAR = dict(
    linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2,
    linear_num_value_heads=4,
)  # fmt: skip
WINDOW = 6
GEMMA = dict(sliding_window=WINDOW, tie_word_embeddings=True)
PER_LAYER = dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=61)
GEMMA4 = GEMMA | PER_LAYER | dict(global_head_dim=24, final_logit_softcapping=5.0)
SLIDING, FULL = "sliding_attention", "full_attention"

# name: (transformers' config class, its fields)
VARIANTS = {
    "qwen3": ("Qwen3Config", dict(num_hidden_layers=2, tie_word_embeddings=True, rope_theta=1e4)),
    "qwen3-untied": ("Qwen3Config", dict(
        num_hidden_layers=1, tie_word_embeddings=False, num_attention_heads=6, num_key_value_heads=3,
        head_dim=24)),
    "llama": ("LlamaConfig", dict(num_hidden_layers=2, tie_word_embeddings=True, head_dim=8)),
    "llama-untied": ("LlamaConfig", dict(
        num_hidden_layers=1, tie_word_embeddings=False, num_key_value_heads=1)),
    "qwen3_5": ("Qwen3_5TextConfig", LINEAR | dict(
        num_hidden_layers=2, tie_word_embeddings=True, layer_types=["linear_attention", FULL])),
    "qwen3_5-untied": ("Qwen3_5TextConfig", LINEAR | dict(
        num_hidden_layers=2, tie_word_embeddings=False, layer_types=[FULL, "linear_attention"],
        linear_num_key_heads=4)),
    "gemma3": ("Gemma3TextConfig", GEMMA | dict(
        num_hidden_layers=3, layer_types=[SLIDING, SLIDING, FULL], query_pre_attn_scalar=10)),
    "gemma3-scaled": ("Gemma3TextConfig", GEMMA | dict(
        num_hidden_layers=2, layer_types=[SLIDING, FULL], query_pre_attn_scalar=16,
        final_logit_softcapping=4.0,
        rope_parameters={SLIDING: {"rope_type": "default", "rope_theta": 1e4},
                         FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}})),
    "gemma4": ("Gemma4TextConfig", GEMMA4 | dict(num_hidden_layers=2, layer_types=[SLIDING, FULL])),
    "gemma4-shared": ("Gemma4TextConfig", GEMMA4 | dict(
        num_hidden_layers=5, layer_types=[SLIDING, SLIDING, FULL, SLIDING, FULL], num_kv_shared_layers=2,
        use_double_wide_mlp=True, num_key_value_heads=1)),
    "gemma4-k_eq_v": ("Gemma4TextConfig", GEMMA4 | dict(
        num_hidden_layers=2, layer_types=[SLIDING, FULL], attention_k_eq_v=True,
        num_global_key_value_heads=1, hidden_size_per_layer_input=0)),
}  # fmt: skip
LENGTHS, WIDTH, CONTINUED = (9, 4, 1), 9, 8  # longer than the window, with 17 tokens in all


_FOLDERS = {}


def folder_of(name, tmp_path_factory):
    """The variant's folder, written by `reference`."""
    if name not in _FOLDERS:
        _FOLDERS[name] = tmp_path_factory.mktemp(name)
    return _FOLDERS[name]


@functools.cache
def reference(name, folder):
    """(transformers model, folder) of a variant, everything perturbed, in float32."""
    import torch
    import transformers

    kind, sizes = VARIANTS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**COMMON | sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    perturb(model)
    model.save_pretrained(folder)
    return model


def perturb(model):
    """Norms, scalars and buffers away from their fresh values."""
    import torch

    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if "norm" in name:
                weight.add_(torch.empty_like(weight).uniform_(-0.5, 0.5))
            elif "layer_scalar" in name:
                weight.uniform_(0.6, 1.4)
            elif "dt_bias" in name or "A_log" in name:
                weight.uniform_(-1.5, 1.0)


@pytest.fixture(scope="module")
def case(request, tmp_path_factory):
    """(transformers model, our module, params, three rows, their wanted logits)."""
    folder = folder_of(request.param, tmp_path_factory)
    hf = reference(request.param, folder)
    model, params = models.load(folder, dtype="float32")
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 61, n + CONTINUED) for n in LENGTHS]
    wanted = [torch_logits(hf, row[None])[0] for row in rows]
    assert np.std(wanted[0]) > 1  # otherwise 1e-4 would say little
    return hf, model, params, rows, wanted


every_variant = pytest.mark.parametrize("case", VARIANTS, indirect=True, scope="module")
one_of_each = pytest.mark.parametrize(
    "case", ["gemma3-scaled", "qwen3_5", "gemma4-shared"], indirect=True, scope="module"
)


def torch_logits(hf, ids):
    import torch

    with torch.no_grad():
        return hf(torch.tensor(np.asarray(ids))).logits.float().numpy()


def left_pad(rows, width):
    tokens, mask = np.full((len(rows), width), 3, np.int32), np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        tokens[i, width - len(row) :], mask[i, width - len(row) :] = row, True
    return tokens, mask


@functools.partial(jax.jit, static_argnums=0)
def forward(model, variables, tokens, mask=None):
    return model.apply(variables, tokens, mask=mask)


@every_variant
def test_full_forward(case):
    """17 tokens with a window of 6. A lost (1 + w), layer scalar or v-norm moves logits by 0.1 and
    more, a window one token wider or narrower by 0.02, RoPE over the wrong dims by 0.3."""
    _, model, params, rows, wanted = case
    logits = forward(model, {"params": params}, rows[0][None])
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits[0], wanted[0], atol=1e-4)


@every_variant
def test_left_padding_of_unequal_lengths(case):
    """Padding that enters the convolution or the state of a delta net, or is counted as a position
    or as a place in the window, is off by 0.05 and more."""
    _, model, params, rows, wanted = case
    tokens, mask = left_pad(rows, WIDTH + CONTINUED)
    logits = forward(model, {"params": params}, tokens, mask)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(logits[i, -len(row) :], wanted[i], atol=1e-4)


@every_variant
def test_prefill_and_eight_decoded_tokens(case):
    """A left-padded batch, then one token after another: past the window, and with the state of the
    delta nets carried over. Each step is also what the general cached call gives."""
    _, model, params, rows, wanted = case
    variables = {"params": params}
    prompts = [row[:n] for row, n in zip(rows, LENGTHS, strict=True)]
    tokens, mask = left_pad(prompts, WIDTH)
    cache = empty_cache(model.config, len(rows), WIDTH + CONTINUED, jnp.float32)
    call = lambda method: jax.jit(functools.partial(model.apply, method=method))
    hidden, cache = call("prefill")(variables, tokens, mask, cache)
    last = model.apply(variables, hidden[:, -1], method="unembed")
    np.testing.assert_allclose(last, [w[n - 1] for w, n in zip(wanted, LENGTHS, strict=True)], atol=1e-4)
    decode = call("decode")
    for i in range(CONTINUED):
        ids = np.asarray([row[n + i] for row, n in zip(rows, LENGTHS, strict=True)])
        logits, cache = decode(variables, ids, cache)
        want = [w[n + i] for w, n in zip(wanted, LENGTHS, strict=True)]
        np.testing.assert_allclose(logits, want, atol=1e-4)
    with pytest.raises(ValueError, match="1 more tokens do not fit the cache of 17 slots, 17 of them filled"):
        model.apply(variables, ids, cache, method="decode")


@one_of_each
def test_cache_in_three_pieces(case):
    """`apply(tokens, cache=...)` in pieces of 5, 1 and 11 tokens equals one call."""
    _, model, params, rows, wanted = case
    cache = empty_cache(model.config, 1, 20, jnp.float32)
    piece = jax.jit(lambda tokens, cache: model.apply({"params": params}, tokens, cache=cache))
    logits = []
    for tokens in np.split(rows[0][None], [5, 6], axis=1):
        part, cache = piece(tokens, cache)
        logits.append(part[0])
    np.testing.assert_allclose(np.concatenate(logits), wanted[0], atol=1e-4)


@every_variant
def test_an_exported_adapter_in_peft(case, noisy_adapter, tmp_path):
    """The real peft on the real model gives our logits, with adapters on every linear layer, and what
    was written is read back bit for bit. Keys that PEFT does not know leave its B at zero: the logits
    would be the base's."""
    from peft import PeftModel

    hf, model, params, rows, wanted = case
    adapter = noisy_adapter(params, targets=(".*",), rank=4, spread=0.1)
    alpha, rank = 6.0, 4
    export_adapter(tmp_path, adapter, list(projections(params)), alpha=alpha, rslora=True, base="base")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*adapter keys.*")  # missing ones are but a warning
        adapted = PeftModel.from_pretrained(copy.deepcopy(hf), str(tmp_path)).eval()
    assert sum(name.endswith("lora_A") for name, _ in adapted.named_modules()) == len(projections(params))
    theirs = torch_logits(adapted, rows[0][None])[0]
    assert np.abs(theirs - wanted[0]).max() > 0.3
    scaled = model.clone(lora_scale=alpha / rank**0.5)
    ours = forward(scaled, {"params": params, "lora": adapter}, rows[0][None])[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    back = import_adapter(tmp_path, adapter, rank=rank, alpha=alpha, rslora=True)
    jax.tree.map(np.testing.assert_array_equal, back, adapter)


@every_variant
def test_bfloat16_is_as_close_to_float32_as_the_reference(case, tmp_path):
    """Mean KL(float32 || bfloat16) over 4 x 48 tokens within 1.5 times the reference's own."""
    import torch

    hf, *_ = case
    hf.save_pretrained(tmp_path)
    ids = np.random.default_rng(2).integers(0, 61, (4, 48))
    log_softmax = lambda x: np.asarray(jax.nn.log_softmax(jnp.asarray(x, jnp.float32)))
    exact = log_softmax(torch_logits(hf, ids))
    kl = lambda logits: float(np.mean(np.sum(np.exp(exact) * (exact - log_softmax(logits)), axis=-1)))
    theirs = kl(torch_logits(type(hf).from_pretrained(tmp_path, dtype=torch.bfloat16).eval(), ids))
    model, params = models.load(tmp_path, dtype="bfloat16")
    kept = {path[-1].key for path, x in jax.tree_util.tree_leaves_with_path(params) if x.dtype == jnp.float32}
    assert kept <= {"A_log", "dt_bias"}
    ours = kl(forward(model, {"params": params}, ids))
    assert 0 < ours <= 1.5 * theirs, ours / theirs


@one_of_each
def test_gradients_are_finite_on_padded_rows(case):
    """With one row of nothing but padding: a mask applied after exp or log would give NaN."""
    _, model, params, rows, _ = case
    tokens, mask = left_pad([rows[0], rows[2]], 17)
    mask[1] = False

    def loss(params):
        logits = model.apply({"params": params}, tokens, mask=mask)
        return jnp.sum(jnp.where(mask, jax.nn.logsumexp(logits, axis=-1), 0.0))

    gradients = jax.jit(jax.grad(loss))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(leaf).all(), path
    moved = {path for path, kernel in projections(gradients).items() if np.any(kernel)}
    assert moved == set(projections(params))  # no linear layer is bypassed


@one_of_each
def test_sampler_and_learner_agree(case, noisy_adapter):
    """Log-probs of ids sampled token by token, each row under its own adapter of a stack, equal the
    teacher-forced ones of that adapter: 1e-4. Greedy ids are the arg max of what they follow."""
    _, model, params, rows, _ = case
    prompts = Prompts(*left_pad([row[:n] for row, n in zip(rows, LENGTHS, strict=True)], WIDTH))
    adapters = [noisy_adapter(params, seed, targets=(".*",), spread=0.1) for seed in range(2)]
    which = np.asarray([1, 0, 1], np.int32)
    keys = row_keys(0, 0, 0, np.arange(3), np.arange(3))
    options = dict(max_new_tokens=CONTINUED, stop_ids=(1000,), pad_id=0, adapter=which)
    variables = {"params": params, "lora": stack_adapters(adapters)}
    for temperature in (1.0, 0.0):
        out = jax.device_get(sample(model, variables, prompts, keys, temperature=temperature, **options))
        tokens = np.concatenate([prompts.tokens, out.tokens], axis=1)
        mask = np.concatenate([prompts.mask, out.mask], axis=1)
        for row, policy in enumerate(which):
            one = {"params": params, "lora": adapters[policy]}
            if temperature:
                logps = token_logprobs(
                    model, one, tokens[row][None], mask[row][None], start=WIDTH, chunk=CONTINUED
                )
                np.testing.assert_allclose(logps[0], out.logps[row], atol=1e-4)
            else:
                logits = forward(model, one, tokens[row][None], mask[row][None])[0]
                np.testing.assert_array_equal(np.argmax(logits[WIDTH - 1 : -1], axis=-1), out.tokens[row])


@one_of_each
def test_on_a_mesh(request, case, tmp_path_factory):
    """Weights split over 2 x 2 x 2 devices: the same logits. 61 embedding rows do not halve, nor does
    a single kv head's norm: such axes stay whole instead of failing."""
    if jax.device_count() != 8:
        pytest.skip("needs eight devices")
    _, model, params, rows, wanted = case
    mesh = sharding.make_mesh((2, 2, 2))
    rows_of = sharding.sharding_of(mesh)
    folder = folder_of(request.node.callspec.params["case"], tmp_path_factory)
    model, params = models.load(folder, dtype="float32", mesh=mesh, rows=rows_of(("rows",)))
    split = [leaf for leaf in jax.tree.leaves(params) if not leaf.sharding.is_fully_replicated]
    assert sum(leaf.nbytes for leaf in split) > 0.7 * sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    tokens, mask = left_pad([rows[0]] * 4, 17)
    place = lambda x: jax.device_put(x, rows_of(("rows", None)))
    logits = forward(model, {"params": params}, place(tokens), place(mask))
    np.testing.assert_allclose(logits, np.stack([wanted[0]] * 4), atol=1e-4)
