"""Prompts to ids and ids to text: nothing cut, nothing guessed."""

import json

import numpy as np
import pytest

from agon_jax import tiny_base
from agon_jax.tasks.operators import World
from agon_jax.text.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "45 10 = 55"}]


@pytest.fixture
def folder(tmp_path):
    tiny_base.write_tokenizer(tmp_path, World())
    return tmp_path


def test_render_ends_with_the_generation_prompt(folder):
    tokenizer = Tokenizer(folder)
    ids, prefill = tokenizer.render(MESSAGES)
    assert ids == tokenizer.encode("<|user|> 45 10 = 55 <|assistant|>")
    assert prefill == ""
    system = [{"role": "system", "content": "ok"}]
    assert tokenizer.render(system + MESSAGES)[0] == tokenizer.encode("<|system|> ok") + ids
    # Nothing is added at either end: a second begin-of-text or a final stop id would be unseen input.
    assert len(ids) == 6


def test_one_token_a_word_and_padded_rows(folder):
    """The world has 118 words; the embedding has 128 rows, as real ones have a few too many."""
    tokenizer = Tokenizer(folder)
    assert tokenizer.num_ids == 118 < json.loads((folder / "config.json").read_text())["vocab_size"] == 128
    ids = tokenizer.encode("<think> 99 - 0 ok </think> <answer> + ? </answer> <attempt> </attempt>")
    assert len(ids) == 12 and tokenizer.encode("<unk>")[0] not in ids


def test_ids_with_gaps(folder):
    """118 words with ids up to 125: counting words would take 118 to 125 for padded rows, and the ids
    of real words could never be sampled."""
    path = folder / "tokenizer.json"
    core = json.loads(path.read_text())
    core["model"]["vocab"]["99"] = 125
    path.write_text(json.dumps(core))
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("99") == [125] and tokenizer.num_ids == 126


def test_padding_is_on_the_left(folder):
    tokenizer = Tokenizer(folder)
    prompts = tokenizer.pad([[7, 8, 9], [5]], 4)
    p = tokenizer.pad_id
    np.testing.assert_array_equal(prompts.tokens, [[p, 7, 8, 9], [p, p, p, 5]])
    np.testing.assert_array_equal(prompts.mask, [[0, 1, 1, 1], [0, 0, 0, 1]])
    assert prompts.tokens.dtype == np.int32 and prompts.mask.dtype == bool


def test_the_mask_is_not_read_off_the_pad_id(folder):
    """A pad id inside a prompt is a token: `tokens != pad` would hide it."""
    tokenizer = Tokenizer(folder)
    prompts = tokenizer.pad([[7, tokenizer.pad_id, 9]], 3)
    np.testing.assert_array_equal(prompts.mask, [[1, 1, 1]])


def test_a_prompt_over_the_cap_is_an_error(folder):
    """Cut on the left it would lose the question, on the right the generation prompt."""
    tokenizer = Tokenizer(folder)
    assert tokenizer.pad([[1] * 8], 8).mask.all()
    with pytest.raises(ValueError, match="9 tokens does not fit the cap of 8"):
        tokenizer.pad([[1] * 3, [1] * 9], 8)


@pytest.mark.parametrize(
    "configured, stop_ids", [(7, (7, 1)), ([7, 9], (7, 9, 1)), ([1, 7], (1, 7)), (None, (1,)), (0, (0, 1))]
)
def test_stop_ids(folder, configured, stop_ids):
    """All of generation_config.json's and the tokenizer's own (1), each once; id 0 is an id.
    With one of several, a row that stopped runs on and counts as cut."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": configured}))
    assert Tokenizer(folder).stop_ids == stop_ids


def test_stop_ids_without_a_generation_config(folder):
    (folder / "generation_config.json").unlink()
    assert Tokenizer(folder).stop_ids == (1,)


def test_decode_drops_only_the_stop_id_that_ended_the_row(folder):
    """Special tokens in the middle stay: dropping all of them would hide a stray role marker."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 6]}))
    tokenizer = Tokenizer(folder)
    assert tokenizer.stop_ids == (1, 6)
    stop, user, eleven = tokenizer.encode("<|end|> <|user|> 11")
    ids = np.asarray([
        [eleven, user, eleven, stop, eleven, eleven],  # what follows the mask is not text
        [eleven, eleven, 6, 0, 0, 0],  # the other stop id
        [eleven] * 6,  # cut at the cap: nothing to drop
        [stop, 0, 0, 0, 0, 0],
        [0, eleven, stop, 0, 0, 0],  # a sampled pad id is text
        [stop, eleven, stop, 0, 0, 0],  # only the last
    ])  # fmt: skip
    mask = np.arange(6) < np.asarray([4, 3, 6, 1, 3, 3])[:, None]
    assert tokenizer.decode(ids, mask) == [
        "11 <|user|> 11", "11 11", "11 11 11 11 11 11", "", "<pad> 11", "<|end|> 11"
    ]  # fmt: skip


PREFILLED = tiny_base.TEMPLATE.replace(
    "<|assistant|>{% endif %}",
    "<|assistant|> {% if enable_thinking %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
)


@pytest.mark.parametrize("think, prefill", [(True, "<think>\n"), (False, "<think>\n\n</think>\n\n")])
def test_a_template_that_writes_the_first_tag(folder, think, prefill):
    """Its part of the reply comes back: without it no completion has an opening <think>."""
    (folder / "chat_template.jinja").write_text(PREFILLED)
    tokenizer = Tokenizer(folder)
    ids, got = tokenizer.render(MESSAGES, think=think)
    assert got == prefill
    assert ids == tokenizer.encode("<|user|> 45 10 = 55 <|assistant|> " + prefill)


def test_a_tag_in_the_question_is_no_prefill(folder):
    tokenizer = Tokenizer(folder)
    assert tokenizer.render([{"role": "user", "content": "say <think> 3"}])[1] == ""


def test_folders_that_cannot_be_used(folder, tmp_path_factory):
    with pytest.raises(ValueError, match="no usable tokenizer"):
        Tokenizer(tmp_path_factory.mktemp("empty"))
    (damaged := tmp_path_factory.mktemp("damaged")).joinpath("tokenizer.json").write_text('{"model":')
    with pytest.raises(ValueError, match="no usable tokenizer"):
        Tokenizer(damaged)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="no chat template; use an instruct model"):
        Tokenizer(folder)


def test_pad_id_falls_back_to_a_stop_id(folder):
    """Several families have no pad token of their own."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("pad_token")
    path.write_text(json.dumps(config))
    tokenizer = Tokenizer(folder)
    assert tokenizer.pad_id == tokenizer.stop_ids[0] == 1
