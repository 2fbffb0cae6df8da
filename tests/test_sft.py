"""Supervised fine-tuning, and the maker of the tiny base."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from agon_jax import base_maker, models, setup, sft, sharding, tiny_base
from agon_jax.tasks.operators import World
from agon_jax.tasks.operators_traces import PHASES, Writer
from agon_jax.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(setup.base_folder("tiny"))


def mesh():
    return sharding.make_mesh((1, 1, 1), jax.devices()[:1])


def draw(rng: random.Random) -> sft.Example:
    return Writer(PHASES["mixed"], World()).example(rng, challenger=rng.random() < 0.5)


def test_the_loss_counts_the_reply_and_its_stop_id_only(tokenizer):
    tokens, mask, reply = next(sft.batches(draw, tokenizer, batch_size=4, seed=0, mesh=mesh()))
    for row in range(4):
        ids, counted = np.asarray(tokens[row]), np.asarray(reply[row])
        start = int(np.argmax(counted))
        # the prompt ends with the assistant's header; the reply starts at <think>, ends with the stop id
        assert tokenizer.decode(ids[None, start : start + 1], np.ones((1, 1), bool)) == ["<think>"]
        assert ids[-1] in tokenizer.stop_ids and counted[-1] and counted[start:].all()
        assert np.asarray(mask[row])[start - 1] and not counted[start - 1]


def test_a_few_steps_of_the_maker_learn_and_write_a_loadable_folder(tmp_path):
    lines = Console(record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    phase = tiny_base.make_phase("mixed", 12, 4e-3, challenger_share=0.4, short_share=0.25)
    options = dict(batch_size=8, seed=0, console=lines, mesh=mesh())
    base_maker.build(tmp_path, tiny_base.WORDS, tiny_base.SIZES, [phase], **options)
    loss = float(lines.export_text().split("last loss")[-1].split()[0])
    # a uniform guess over 118 ids costs ln 118 = 4.77; the format alone is learnt within a few steps
    assert loss < 3.5
    module, params = models.load(str(tmp_path), dtype=jnp.float32)
    assert module.config.vocab_size == json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    assert np.isfinite(module.apply({"params": params}, jnp.zeros((1, 4), jnp.int32))).all()


def test_the_bundled_base_is_small_and_knows_the_format(tokenizer):
    folder = setup.base_folder("tiny")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4e6
    model, params = models.load(str(folder), dtype=jnp.float32, num_ids=tokenizer.num_ids)
    tokens, mask, reply = next(sft.batches(draw, tokenizer, batch_size=16, seed=1, mesh=mesh()))
    step = sft.make_step(model, sft.optimizer(10, 0.0))
    state = jax.jit(sft.optimizer(10, 0.0).init)(params)
    loss = float(step(params, state, tokens, mask, reply)[2])
    assert loss < 0.5  # nats a token; the noise of the traces themselves is about 0.1 to 0.2
