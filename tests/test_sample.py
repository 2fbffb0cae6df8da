"""Sampling: what was drawn, its log-probs and masks, and keys that depend on the row alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import tiny_config

from agon_jax import sample as sampling
from agon_jax import sharding
from agon_jax.logprobs import token_logprobs
from agon_jax.models import load
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.lora import stack_adapters
from agon_jax.types import Prompts

OPTIONS = dict(max_new_tokens=6, stop_ids=(1, 7, 8, 9, 40), pad_id=0, temperature=0.6)


def pad(rows, width):
    """Left-padded prompts."""
    tokens, mask = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        tokens[i, width - len(row) :], mask[i, width - len(row) :] = row, True
    return Prompts(tokens, mask)


def some_prompts(lengths, width, vocabulary=60):
    rng = np.random.default_rng(0)
    return pad([rng.integers(2, vocabulary, n) for n in lengths], width)


def keys_of(rows, seed=0, step=0, stage=0):
    return sampling.row_keys(seed, step, stage, np.full(rows, 7), np.arange(rows))


def draw(model, variables, prompts, **options):
    keys = options.pop("keys", keys_of(len(prompts.tokens)))
    return jax.device_get(sampling.sample(model, variables, prompts, keys, **OPTIONS | options))


def from_table(logits, decoder=Decoder, **options):
    """A decoder without layers whose logits after token i are the row logits[i]."""
    size = len(logits)
    model = decoder(tiny_config(
        num_layers=0, vocab_size=size, hidden_size=size, rms_norm_eps=1e-12, tie_word_embeddings=False
    ), **options)  # fmt: skip
    head = np.asarray(logits, np.float32).T / size**0.5  # a normed one-hot has the length sqrt(size)
    params = {
        "embed_tokens": jnp.eye(size), "norm": {"scale": jnp.ones(size)}, "lm_head": jnp.asarray(head)
    }  # fmt: skip
    return model, {"params": params}


CHAINS = [[10, 11, 12, 1], [20, 6], [21, 22, 23, 24, 25, 26, 27], [28, 0, 29, 6], [13, 14, 15, 16, 17, 18, 1]]


def chains(decoder=Decoder):
    """Every token of a chain is followed by the next one for certain."""
    logits = np.zeros((32, 32))
    for chain in CHAINS:
        logits[chain[:-1], chain[1:]] = 100.0
    model, variables = from_table(logits, decoder)
    return model, variables, pad([chain[:1] for chain in CHAINS], 2)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("pad_id", [0, 1])
def test_what_is_real(temperature, pad_id):
    """Up to and including the first of several stop ids; a pad id before it is a sampled token.

    `tokens != pad` would drop the 0 of the fourth row, and with pad = stop the 1 that ends the first.
    Were 1 the only stop id, the second row would run on and count as cut, as only the third is.
    """
    model, variables, prompts = chains()
    out = draw(model, variables, prompts, stop_ids=(1, 6), pad_id=pad_id, temperature=temperature)
    p = pad_id
    np.testing.assert_array_equal(out.tokens, [
        [11, 12, 1, p, p, p], [6, p, p, p, p, p], [22, 23, 24, 25, 26, 27], [0, 29, 6, p, p, p],
        [14, 15, 16, 17, 18, 1],
    ])  # fmt: skip
    np.testing.assert_array_equal(out.mask.sum(axis=1), [3, 1, 6, 3, 6])
    assert all(row[:n].all() for row, n in zip(out.mask, [3, 1, 6, 3, 6], strict=True))
    np.testing.assert_array_equal(out.finished, [True, True, False, True, True])
    np.testing.assert_array_equal(out.logps, 0)


def test_ends_with_the_last_row():
    """Six ids at most here: one from the prefill, five decoded, not the 50 that are allowed."""
    steps = []

    class Counting(Decoder):
        def decode(self, *args, **kwargs):
            jax.debug.callback(lambda: steps.append(1))
            return super().decode(*args, **kwargs)

    model, variables, prompts = chains(Counting)
    keep = [0, 1, 3, 4]
    prompts = Prompts(prompts.tokens[keep], prompts.mask[keep])
    out = draw(model, variables, prompts, stop_ids=(1, 6), max_new_tokens=50)
    jax.effects_barrier()
    assert out.finished.all() and out.tokens.shape == (4, 50)
    assert len(steps) == 5


def test_frequencies():
    """4000 draws at T = 0.5 from (0.5, 0.3, 0.15, 0.05): squares over their sum, the nucleus on top.
    Without the temperature the first id has 0.5 instead of 0.685, or 0.625 instead of 0.735."""
    model, variables = from_table(np.log([[0.5, 0.3, 0.15, 0.05]] * 4))
    prompts = Prompts(np.zeros((4000, 1), np.int32), np.ones((4000, 1), bool))
    for top_p, wanted in [(1.0, [0.6849, 0.2466, 0.0616, 0.0068]), (0.8, [0.7353, 0.2647, 0, 0])]:
        out = draw(model, variables, prompts, max_new_tokens=1, temperature=0.5, top_p=top_p)
        counts = np.bincount(out.tokens[:, 0], minlength=4) / 4000
        np.testing.assert_allclose(counts, wanted, atol=0.037)  # 5 standard deviations
        np.testing.assert_allclose(np.exp(out.logps[:, 0]), np.asarray(wanted)[out.tokens[:, 0]], atol=1e-4)
        assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(wanted))


def test_padded_vocabulary_is_never_sampled():
    """5 ids in 64 rows, near-uniform: 92 of 100 draws would be an id that the tokenizer lacks."""
    model, variables = from_table(np.zeros((64, 64)), num_ids=5)
    prompts = some_prompts([3] * 8, 3, 5)
    options = dict(temperature=100.0, stop_ids=(63,), max_new_tokens=20)
    for top_p in (1.0, 0.999):
        out = draw(model, variables, prompts, top_p=top_p, **options)
        assert out.tokens.max() == 4 and len(np.unique(out.tokens)) == 5
        np.testing.assert_allclose(out.logps, np.log(1 / 5), atol=1e-5)


def test_keys():
    """2 steps x 2 stages x 2 problems x 8 rollouts of uniform ids: 64 different rows, the same again
    for the same seed. One key for a group gives 8 equal rows and no variance to learn from."""
    model, variables = from_table(np.zeros((64, 64)))
    problems, rollouts = np.repeat([3, 5], 8), np.tile(np.arange(8), 2)

    def everything(seed):
        keys = [
            sampling.row_keys(seed, step, stage, problems, rollouts) for step in (0, 1) for stage in (0, 1)
        ]
        prompts = Prompts(np.full((64, 1), 9, np.int32), np.ones((64, 1), bool))
        options = dict(keys=jnp.concatenate(keys), temperature=1.0, stop_ids=(64,), max_new_tokens=12)
        return draw(model, variables, prompts, **options).tokens

    tokens = everything(0)
    assert len(np.unique(tokens, axis=0)) == 64
    assert min(len(np.unique(row)) for row in tokens) > 4  # every place of a row has a key of its own
    np.testing.assert_array_equal(everything(0), tokens)
    assert len(np.unique(np.concatenate([tokens, everything(1)]), axis=0)) == 128


def test_keys_do_not_confuse_their_parts():
    """(step 1, stage 0) is not (step 0, stage 1), (problem 3, rollout 5) not (5, 3), also where the
    default generator folds without order; and the keys do not depend on that default."""
    keys = lambda *args: jax.random.key_data(sampling.row_keys(*args))
    with jax.default_prng_impl("unsafe_rbg"):
        other_default = keys(0, 1, 2, np.asarray([3, 5]), np.asarray([5, 3]))
    first = keys(0, 1, 2, np.asarray([3, 5]), np.asarray([5, 3]))
    np.testing.assert_array_equal(first, other_default)
    rows = [*first, *keys(0, 2, 1, np.asarray([3, 5]), np.asarray([5, 3]))]
    assert len(np.unique(np.asarray(rows), axis=0)) == 4
    large = keys(0, 1, 2, np.asarray([2**31 - 1, 3]), np.asarray([0, 5]))  # any 31-bit content hash
    np.testing.assert_array_equal(large[1], first[0])


@pytest.fixture
def policies(toy, noisy_adapter):
    """(model, params, two adapters); the output of a row mixes real tokens and an early end."""
    model, params = toy(num_layers=1, num_ids=61)
    return model, params, [noisy_adapter(params, seed) for seed in (1, 2)]


LENGTHS, WIDTH, INDEX = (5, 2, 3, 1, 5, 4, 2, 3), 5, np.asarray([0, 1, 1, 0, 1, 0, 0, 1], np.int32)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_logps_are_the_learners(policies, top_p):
    """The ratio before any update is 1: within 1e-5 in float32, left padding and nucleus included.

    Without the temperature in the learner the log-probs differ by 0.5, without the nucleus by 0.1,
    with the other adapter by 1.
    """
    model, params, adapters = policies
    prompts = some_prompts(LENGTHS, WIDTH)
    variables = {"params": params, "lora": stack_adapters(adapters)}
    out = draw(model, variables, prompts, adapter=INDEX, top_p=top_p)
    assert 0 < out.mask.sum() < out.mask.size  # some rows end early
    tokens = np.concatenate([prompts.tokens, out.tokens], axis=1)
    mask = np.concatenate([prompts.mask, out.mask], axis=1)
    score = jax.jit(functools.partial(
        token_logprobs, model, start=WIDTH, chunk=4, temperature=OPTIONS["temperature"], top_p=top_p
    ))  # fmt: skip
    learned = [score({"params": params, "lora": adapter}, tokens, mask) for adapter in adapters]
    for row, which in enumerate(INDEX):
        real = out.mask[row]
        np.testing.assert_allclose(out.logps[row][real], learned[which][row][real], atol=1e-5)
    assert not out.logps[~out.mask].any()
    assert out.logps[out.mask].min() < -0.5


def test_a_row_does_not_depend_on_its_batch(policies):
    """Other order, other neighbours, more padding: the same ids. Keys split by place in the batch, or
    one draw [B, V] for all rows, would give others."""
    model, params, adapters = policies
    variables = {"params": params, "lora": stack_adapters(adapters)}
    prompts, keys = some_prompts(LENGTHS, WIDTH), keys_of(8)
    whole = draw(model, variables, prompts, keys=keys, adapter=INDEX)

    def part(rows, more=0):
        wide = lambda x: np.pad(x[rows], ((0, 0), (more, 0)))
        chosen = Prompts(wide(prompts.tokens), wide(prompts.mask))
        return draw(model, variables, chosen, keys=keys[rows], adapter=INDEX[rows]).tokens

    order = np.asarray([3, 0, 5, 1, 7, 4, 2, 6])
    np.testing.assert_array_equal(part(order), whole.tokens[order])
    np.testing.assert_array_equal(part(np.asarray([4, 1]), more=3), whole.tokens[[4, 1]])


def test_each_row_is_sampled_from_its_own_adapter(policies):
    """As when each adapter samples all rows by itself; neither roles that rotate nor another
    temperature compile anything new."""
    model, params, adapters = policies
    prompts = some_prompts(LENGTHS, WIDTH)
    stack = {"params": params, "lora": stack_adapters(adapters)}
    mixed = draw(model, stack, prompts, adapter=INDEX)
    compiled = sampling._sample._cache_size()
    swapped = draw(model, stack, prompts, adapter=1 - INDEX)
    draw(model, stack, prompts, adapter=INDEX, temperature=0.7, keys=keys_of(8, step=1))
    assert sampling._sample._cache_size() == compiled
    alone = [draw(model, {"params": params, "lora": adapter}, prompts).tokens for adapter in adapters]
    for row, which in enumerate(INDEX):
        np.testing.assert_array_equal(mixed.tokens[row], alone[which][row])
        np.testing.assert_array_equal(swapped.tokens[row], alone[1 - which][row])
    assert (alone[0] != alone[1]).any(axis=1).sum() >= 6


def test_greedy_equals_transformers_generate(qwen3):
    """Left-padded prompts of unequal lengths, and stop ids that end some rows before others."""
    import torch

    hf, folder = qwen3()
    prompts, stops = some_prompts(LENGTHS, WIDTH), [1, 7, 23, 35]
    ids, mask = (torch.tensor(x.astype(np.int64)) for x in (prompts.tokens, prompts.mask))
    options = dict(max_new_tokens=8, do_sample=False, eos_token_id=stops, pad_token_id=0)
    theirs = hf.generate(ids, attention_mask=mask, **options)[:, WIDTH:].numpy()
    model, params = load(str(folder), dtype=jnp.float32)
    ours = draw(model, {"params": params}, prompts, temperature=0.0, stop_ids=tuple(stops), max_new_tokens=8)
    np.testing.assert_array_equal(ours.tokens[:, : theirs.shape[1]], theirs)
    assert len(np.unique(ours.tokens)) > 8


def test_the_smallest_cache(toy):
    """T + C slots are enough, as many as without a cache; with one fewer, a write past the end would
    be moved onto the last slot without a word, so it is an error before anything runs."""
    model, params = toy(num_layers=1)
    variables, prompts = {"params": params}, some_prompts((5, 3), 5)
    options = dict(temperature=0.0, stop_ids=(64,))
    with pytest.raises(ValueError, match=r"prompt \(5\) \+ new tokens \(6\) exceed the KV cache of 10 slots"):
        draw(model, variables, prompts, cache_slots=10, **options)
    exact = draw(model, variables, prompts, cache_slots=11, **options)

    forward = jax.jit(lambda tokens, mask: model.apply(variables, tokens, mask=mask))
    tokens, mask = (np.pad(x, ((0, 0), (0, 6))) for x in (prompts.tokens, prompts.mask))
    for i in range(5, 11):
        tokens[:, i], mask[:, i] = jnp.argmax(forward(tokens, mask)[:, i - 1], axis=-1), True
    np.testing.assert_array_equal(exact.tokens, tokens[:, 5:])


@pytest.mark.parametrize("options", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}])
def test_options_out_of_range(options):
    model, variables, prompts = chains()
    with pytest.raises(ValueError, match="must be >= 0 and top_p"):
        draw(model, variables, prompts, **options)


def test_rows_over_a_mesh(policies):
    """Eight devices draw what one draws."""
    if jax.device_count() != 8:
        pytest.skip("needs eight devices")
    model, params, adapters = policies
    prompts = some_prompts(LENGTHS, WIDTH)
    wanted = draw(model, {"params": params, "lora": adapters[0]}, prompts)
    mesh = sharding.make_mesh((2, 2, 2))
    place = sharding.sharding_of(mesh)
    split = jax.tree.map(lambda leaf: leaf, params)
    for path, (_, axes) in param_specs(model).items():
        node = functools.reduce(dict.__getitem__, path[:-1], split)
        node[path[-1]] = jax.device_put(node[path[-1]], place(axes))
    variables = {"params": split, "lora": jax.device_put(adapters[0], sharding.replicated(mesh))}
    rows = Prompts(*(jax.device_put(x, place(("rows", None))) for x in (prompts.tokens, prompts.mask)))
    got = sampling.sample(model, variables, rows, jax.device_put(keys_of(8), place(("rows",))), **OPTIONS)
    np.testing.assert_array_equal(got.tokens, wanted.tokens)
    np.testing.assert_allclose(got.logps, wanted.logps, atol=1e-5)


def test_one_loop_and_one_cache(policies):
    """One while loop, whose body forwards all rows at once, and the cache is not copied: temporaries
    of the compiled program stay below two caches (a loop vmapped over rows selects over a second one
    at every token)."""
    model, params, _ = policies
    rows, width, new = 4, 8, 1000
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    lowered = sampling._sample.trace(
        model, {"params": jax.tree.map(shape, params)}, jax.ShapeDtypeStruct((rows, width), jnp.int32),
        jax.ShapeDtypeStruct((rows, width), bool), shape(keys_of(rows)), None, 0.6,
        max_new_tokens=new, slots=width + new, stop_ids=(1,), pad_id=0, top_p=1.0, greedy=False,
    )  # fmt: skip
    assert str(lowered.jaxpr).count(" while[") == 1
    cache = 2 * rows * (width + new) * 2 * 16 * 4
    temporaries = lowered.lower().compile().memory_analysis().temp_size_in_bytes
    assert temporaries < 2 * cache
