"""Prompts to ids and ids to text: nothing cut, nothing guessed."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer as Core

from agon_jax import base_maker, tiny_base
from agon_jax.text.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "45 10 = 55"}]


@pytest.fixture
def folder(tmp_path):
    base_maker.write_tokenizer(tmp_path, tiny_base.WORDS, tiny_base.SIZES)
    return tmp_path


def spell(folder, text):
    """Ids of text whose control tokens count as such: what the template means by it."""
    return Core.from_file(str(folder / "tokenizer.json")).encode(text).ids


def test_render_ends_with_the_generation_prompt(folder):
    tokenizer = Tokenizer(folder)
    ids, prefill = tokenizer.render(MESSAGES)
    assert ids == spell(folder, "<|user|> 45 10 = 55 <|assistant|>")
    assert prefill == ""
    system = [{"role": "system", "content": "ok"}]
    assert tokenizer.render(system + MESSAGES)[0] == spell(folder, "<|system|> ok") + ids
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


def configure(folder, name, **entries):
    """Overwrite a JSON file of the folder."""
    (folder / name).write_text(json.dumps(entries))


@pytest.mark.parametrize(
    "configured, stop_ids",
    [(7, (7,)), ([7, 9], (7, 9)), ([1, 107], (1, 107)), ([7, None, 7], (7,)), (0, (0,))],
)
def test_stop_ids(folder, configured, stop_ids):
    """Exactly generation_config.json's, as in generate(); id 0 is an id. The tokenizer's own (1) on top
    gives (7, 1): where the model was trained to write it inside a turn, rows would end there."""
    configure(folder, "generation_config.json", eos_token_id=configured)
    configure(folder, "config.json", model_type="qwen3", eos_token_id=55)
    assert Tokenizer(folder).stop_ids == stop_ids


@pytest.mark.parametrize("generation", [{"eos_token_id": None}, {"eos_token_id": []}, {}, None])
@pytest.mark.parametrize(
    "config, stop_ids",
    [
        ({"eos_token_id": [7, 9]}, (7, 9)),
        ({"eos_token_id": 0}, (0,)),
        ({"text_config": {"eos_token_id": 7}}, (7,)),
        ({"eos_token_id": [7, 9], "text_config": {"eos_token_id": 8}}, (7, 9)),
        ({"text_config": None}, (1,)),
        ({}, (1,)),  # the tokenizer's own
    ],
)
def test_stop_ids_that_generation_config_does_not_name(folder, generation, config, stop_ids):
    (folder / "generation_config.json").unlink()
    if generation is not None:
        configure(folder, "generation_config.json", **generation)
    configure(folder, "config.json", model_type="qwen3", **config)
    assert Tokenizer(folder).stop_ids == stop_ids


def test_no_stop_id(folder):
    """Every row would run into the cap."""
    (folder / "generation_config.json").unlink()
    (folder / "config.json").unlink()
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("eos_token")
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="names an eos id"):
        Tokenizer(folder)


@pytest.mark.parametrize("content", ['{"eos_token_id": [1', "[1]", '{"eos_token_id": "<|end|>"}'])
def test_a_damaged_generation_config(folder, content):
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(ValueError, match=r"generation_config\.json"):
        Tokenizer(folder)


@pytest.mark.parametrize("rows, num_ids", [(None, 118), (128, 118), (118, 118), (117, 117)])
def test_added_ids_without_an_embedding(folder, rows, num_ids):
    """Word 117 (the last of 118) added, as Gemma's image token is: with 117 rows, 118 ids would be one
    too many for the embedding."""
    path = folder / "tokenizer.json"
    core = json.loads(path.read_text())
    core["added_tokens"].append(core["added_tokens"][0] | {"id": 117, "content": "99", "special": False})
    path.write_text(json.dumps(core))
    assert Tokenizer(folder, rows).num_ids == num_ids


def test_ordinary_ids_without_an_embedding(folder):
    """117 is a word: the folder's tokenizer is another model's. JAX would read row 116 for it."""
    with pytest.raises(ValueError, match=r"up to 117, .* 117 rows; tokenizer and config\.json do not belong"):
        Tokenizer(folder, 117)


def test_a_prompt_id_without_an_embedding(folder):
    tokenizer = Tokenizer(folder, 128)
    assert tokenizer.pad([[127, 0]], 3).mask.sum() == 2
    for id_ in (128, -1):
        with pytest.raises(ValueError, match=f"holds the id {id_},"):
            tokenizer.pad([[5], [7, id_]], 3)
    assert Tokenizer(folder).pad([[128]], 1).tokens == 128  # nothing known of an embedding


def test_a_pad_id_without_an_embedding(folder):
    """Some families add a pad token beyond the embedding: what its rows read must exist."""
    path = folder / "tokenizer.json"
    core = json.loads(path.read_text())
    core["added_tokens"].append(core["added_tokens"][0] | {"id": 118, "content": "<fill>"})
    path.write_text(json.dumps(core))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    configure(folder, "tokenizer_config.json", **config | {"pad_token": "<fill>"})
    assert Tokenizer(folder).pad_id == 118
    assert Tokenizer(folder, 118).pad_id == 1


def test_decode_drops_only_the_stop_id_that_ended_the_row(folder):
    """Special tokens in the middle stay: dropping all of them would hide a stray role marker."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 6]}))
    tokenizer = Tokenizer(folder)
    assert tokenizer.stop_ids == (1, 6)
    stop, user, eleven = spell(folder, "<|end|> <|user|> 11")
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


PREFILLED = base_maker.TEMPLATE.replace(
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
    assert ids == spell(folder, "<|user|> 45 10 = 55 <|assistant|> " + prefill)


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
