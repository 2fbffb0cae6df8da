"""Teacher-forced log-probs: in chunks as at once, in values, gradients and memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import tiny_config

from agon_jax.logprobs import token_logprobs
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.lora import init_adapter

ROWS, WIDTH, START, NUM_IDS = 3, 14, 4, 61


@pytest.fixture
def case(toy, noisy_adapter):
    """A policy on left-padded rows: 64 vocabulary rows for 61 ids."""
    model, params = toy(num_layers=1, num_ids=NUM_IDS)
    adapter = noisy_adapter(params, targets=("q_proj", "down_proj"))
    tokens = np.random.default_rng(0).integers(0, NUM_IDS, (ROWS, WIDTH))
    mask = np.arange(WIDTH) >= np.asarray([[0], [2], [3]])
    return model, params, adapter, tokens, mask


def score(model, params, adapter, tokens, mask, **options):
    options = {"start": START, "chunk": WIDTH} | options
    variables = {"params": params, "lora": adapter}
    return jax.jit(functools.partial(token_logprobs, model, **options))(variables, tokens, mask)


def test_values(case):
    """log softmax of the logits one place earlier, at temperature 0.6. Off by one place: about 3."""
    model, params, adapter, tokens, mask = case
    logits = jax.jit(model.apply)({"params": params, "lora": adapter}, tokens, mask=mask)
    plain = jax.nn.log_softmax(logits / 0.6)[:, START - 1 : -1]
    wanted = np.take_along_axis(np.asarray(plain), tokens[:, START:, None], axis=-1)[..., 0]
    got = score(model, params, adapter, tokens, mask, temperature=0.6)
    assert got.shape == (ROWS, WIDTH - START) and got.dtype == jnp.float32
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_chunked_equals_whole(case):
    """10 places in chunks of 4 (the last one is padded): values and gradients within 1e-5."""
    model, params, adapter, tokens, mask = case

    def loss(adapter, chunk):
        logps = score(model, params, adapter, tokens, mask, chunk=chunk, temperature=0.6)
        return jnp.sum(jnp.sin(logps)), logps  # another weight for every token

    run = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, whole), whole_gradient = run(adapter, WIDTH)
    (_, chunked), chunked_gradient = run(adapter, 4)
    np.testing.assert_allclose(chunked, whole, atol=1e-5)
    check = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4)
    jax.tree.map(check, chunked_gradient, whole_gradient)
    assert np.abs(whole_gradient["layers_0"]["self_attn"]["q_proj"]["b"]).max() > 1e-2


def test_padded_vocabulary_takes_no_mass(case):
    """61 ids share the mass: their probabilities sum to 1. With the 3 padded rows: about 61 / 64."""
    model, params, adapter, tokens, _ = case
    every = np.broadcast_to(np.arange(NUM_IDS)[:, None], (NUM_IDS, WIDTH)).copy()
    every[:, :-1] = tokens[0, :-1]
    options = {"start": WIDTH - 1, "temperature": 20.0}
    logps = score(model, params, adapter, every, np.ones_like(every, bool), **options)
    np.testing.assert_allclose(np.exp(logps).sum(), 1.0, atol=1e-5)


def test_a_row_of_padding_adds_nothing(case):
    """Its log-probs are finite, so that a masked sum has the gradient of the batch without the row
    (here: with a real row of weight 0). NaN times 0 is NaN and would poison every weight."""
    model, params, adapter, tokens, mask = case
    tokens = np.concatenate([tokens, tokens[:1]])
    weight = np.asarray([[1.0], [1.0], [1.0], [0.0]])

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient(adapter, mask):
        logps = score(model, params, adapter, tokens, mask, chunk=4, top_p=0.9)
        return jnp.sum(logps * weight), logps

    padded, logps = gradient(adapter, np.concatenate([mask, np.zeros((1, WIDTH), bool)]))
    wanted, _ = gradient(adapter, np.concatenate([mask, np.ones((1, WIDTH), bool)]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4), padded, wanted)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(padded))
    assert logps.min() > -100  # most of these ids lie outside the nucleus: -1e30 if they left the support


def test_padding_moves_nothing(case):
    """A row has the same log-probs left-padded and right-padded (attending to the three tokens of
    padding, or counting positions over them on one side, moves them by 0.1 and more)."""
    model, params, adapter, tokens, _ = case
    row, ones, other = tokens[:1], np.ones((1, WIDTH), bool), np.full((1, 3), 7)
    mask = np.concatenate([~ones[:, :3], ones], axis=1)
    left = score(model, params, adapter, np.concatenate([other, row], axis=1), mask, start=START + 3)
    right = score(model, params, adapter, np.concatenate([row, other], axis=1), mask[:, ::-1].copy())
    np.testing.assert_allclose(left, right[:, : WIDTH - START], atol=1e-5)


@pytest.mark.parametrize("start", [0, WIDTH, -1])
def test_start_out_of_range(case, start):
    """The first token has no condition, and an empty range is a mistake of the caller."""
    model, params, adapter, tokens, mask = case
    with pytest.raises(ValueError, match=f"start must be within 1..{WIDTH - 1}, got {start}"):
        score(model, params, adapter, tokens, mask, start=start)


def test_memory():
    """8 x 128 tokens over 32768 ids: one float32 copy of the logits is 128 MiB, and the plain backward
    pass keeps two or three. In chunks of 8, forward and backward stay below a quarter of one."""
    rows, length, vocabulary = 8, 128, 32768
    model = Decoder(tiny_config(num_layers=1, vocab_size=vocabulary))
    params = {}
    for path, (shape, _) in param_specs(model).items():
        node = params
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = jax.ShapeDtypeStruct(shape, jnp.float32)
    adapter = jax.eval_shape(lambda: init_adapter(jax.random.key(0), params, 4, ("q_proj",), 0.1))
    tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    mask = jax.ShapeDtypeStruct((rows, length), bool)

    def temporaries(chunk):
        def loss(adapter, params, tokens, mask):
            variables = {"params": params, "lora": adapter}
            return token_logprobs(model, variables, tokens, mask, start=1, chunk=chunk).sum()

        compiled = jax.jit(jax.value_and_grad(loss)).lower(adapter, params, tokens, mask).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    one_copy = 4 * rows * length * vocabulary
    assert temporaries(8) < one_copy / 4
    assert temporaries(length) > one_copy  # the measure sees the array that the chunks avoid
