"""Real weights against transformers, token for token. Opt-in, since they are downloads.

    AGON_REAL=/folder pytest -m real tests/test_real.py -s

Reads the Hugging Face folders $AGON_REAL/gemma3-270m (Gemma 3 270M, the base) and
$AGON_REAL/smollm2-135m (SmolLM2-135M-Instruct); any conversion of them will do. About five minutes on
two cores, most of it transformers' generation.

Random toys (test_families.py) find a wrong formula. Real weights find what a toy is too small or too
short for: a window of 512, 18 layers in their real pattern, a vocabulary of 262144, activations in the
hundreds, and a folder that transformers wrote from somebody else's file.
"""

import functools
import itertools
import os
import pathlib

import jax
import numpy as np
import pytest

from agon_jax.models import load
from agon_jax.sample import row_keys, sample
from agon_jax.text.tokenizer import Tokenizer
from agon_jax.types import Prompts

pytestmark = pytest.mark.real

NEW_TOKENS = 64
GEMMA_PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived an old fisherman who",
    "def fibonacci(n):\n",
)
SMOLLM_CHATS = (
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": "Is the sky blue? Answer yes or no."},
    ],
    [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "Tell me about the planet Mars."},
    ],
    [{"role": "user", "content": "Write a Python function that adds two numbers."}],
)


def story(sentences):
    """Prose that no model knows by heart: every person, thing and place in turn."""
    people = ("Ada", "Bruno", "Clara", "Dmitri", "Edda", "Farid", "Greta")
    things = ("a brass lamp", "two letters", "an old violin", "some apples", "a broken clock")
    places = ("in the attic", "under the bridge", "behind the mill", "near the harbour")
    rounds = zip(*map(itertools.cycle, (people, things, places)), strict=False)
    told = [f"{who} kept {what} {where}." for who, what, where in itertools.islice(rounds, sentences)]
    return "The village had many secrets. " + " ".join(told) + " Nobody ever asked why, but"


def folder_of(name):
    root = os.environ.get("AGON_REAL")
    if not root:
        pytest.skip("AGON_REAL is not set: name the folder that holds the real models")
    folder = pathlib.Path(root) / name
    if not (folder / "config.json").is_file():
        pytest.skip(f"no model in {folder}")
    return folder


@functools.lru_cache(maxsize=1)  # one model at a time in memory
def pair(folder, num_ids):
    """(transformers' model, our (model, params)), both in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return hf, load(folder, dtype="float32", num_ids=num_ids)


def theirs(hf, ids, new_tokens):
    """transformers' greedy continuation of one row, its stop id included."""
    import torch

    ids = torch.tensor([ids])
    out = hf.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens, pad_token_id=0
    )
    return out[0, ids.shape[1] :].tolist()


def ours(model, params, rows, new_tokens, stop_ids):
    """Our greedy continuations, all rows in one left-padded batch."""
    width = max(map(len, rows))
    mask = np.asarray([np.arange(width) >= width - len(row) for row in rows])
    tokens = np.zeros(mask.shape, np.int32)
    tokens[mask] = np.concatenate(rows)
    out = sample(
        model, {"params": params}, Prompts(tokens, mask), row_keys(0, 0, 0, np.arange(len(rows)), mask[:, 0]),
        max_new_tokens=new_tokens, stop_ids=stop_ids, pad_id=0, temperature=0.0,
    )  # fmt: skip
    texts = [
        ids[real].tolist() for ids, real in zip(np.asarray(out.tokens), np.asarray(out.mask), strict=True)
    ]
    assert out.finished.tolist() == [text[-1] in stop_ids for text in texts]
    return texts


def compare(hf, ours_, rows, new_tokens, stop_ids, decode):
    """Every row equals transformers' one; prints the texts."""
    model, params = ours_
    wanted = [theirs(hf, row, new_tokens) for row in rows]
    got = ours(model, params, rows, new_tokens, stop_ids)
    for row, mine, reference in zip(rows, got, wanted, strict=True):
        print(f"\n{len(row)} + {len(reference)} tokens: {decode(reference)!r}")
        assert len(reference) == new_tokens or reference[-1] in stop_ids
        assert mine == reference


def largest_difference(hf, ours_, ids):
    """Max |logit - transformers' logit| over one teacher-forced row."""
    import torch

    model, params = ours_
    with torch.no_grad():
        wanted = hf(torch.tensor([ids])).logits[0].numpy()
    got = np.asarray(jax.jit(model.apply)({"params": params}, np.asarray([ids])))[0]
    difference = float(np.abs(got - wanted).max())
    print(f"\n{len(ids)} tokens: logits differ by {difference:.1e} at most (their std is {wanted.std():.1f})")
    return difference


@pytest.fixture
def gemma():
    from transformers import AutoTokenizer

    folder = folder_of("gemma3-270m")
    tokenizer = AutoTokenizer.from_pretrained(folder)  # ours asks for a chat template; this is a base
    return tokenizer, *pair(folder, len(tokenizer))


@pytest.fixture
def smollm():
    folder = folder_of("smollm2-135m")
    tokenizer = Tokenizer(folder)
    return folder, tokenizer, *pair(folder, tokenizer.num_ids)


def test_gemma_short_prompts(gemma):
    """Three prompts of unequal lengths in one batch, 64 tokens each."""
    tokenizer, hf, both = gemma
    rows = [tokenizer(prompt).input_ids for prompt in GEMMA_PROMPTS]
    assert len(set(map(len, rows))) == 3 and all(row[0] == tokenizer.bos_token_id for row in rows)
    compare(hf, both, rows, NEW_TOKENS, (tokenizer.eos_token_id,), tokenizer.decode)


def test_gemma_across_the_window(gemma):
    """A prompt beyond the window of 512, one that grows past it, and one that is mostly padding."""
    tokenizer, hf, both = gemma
    rows = [tokenizer(text).input_ids for text in (story(70), story(56), GEMMA_PROMPTS[0])]
    assert len(rows[0]) > 600 > hf.config.sliding_window > len(rows[1]) > 500
    compare(hf, both, rows, 24, (tokenizer.eos_token_id,), tokenizer.decode)


def test_gemma_logits(gemma):
    """All logits of a text longer than the window."""
    tokenizer, hf, both = gemma
    ids = tokenizer(story(70)).input_ids
    assert len(ids) > hf.config.sliding_window + 64
    assert largest_difference(hf, both, ids) < 1e-2


def test_smollm_chat_ids(smollm):
    """The ids of a rendered chat are transformers' own."""
    from transformers import AutoTokenizer

    folder, tokenizer, *_ = smollm
    reference = AutoTokenizer.from_pretrained(folder)
    for messages in SMOLLM_CHATS:
        wanted = reference.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
        assert tokenizer.render(messages) == (wanted, "")


def test_smollm_chats(smollm):
    """Three chats of unequal lengths in one batch, up to 64 tokens each."""
    _, tokenizer, hf, both = smollm
    rows = [tokenizer.render(messages)[0] for messages in SMOLLM_CHATS]
    assert len(set(map(len, rows))) == 3
    decode = lambda ids: tokenizer.decode(np.asarray([ids]), np.ones((1, len(ids)), bool))[0]
    compare(hf, both, rows, NEW_TOKENS, tokenizer.stop_ids, decode)


def test_smollm_logits(smollm):
    """All logits of a text of about 600 tokens."""
    _, tokenizer, hf, both = smollm
    assert largest_difference(hf, both, tokenizer.encode(story(50))) < 1e-2
