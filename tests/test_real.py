"""Real weights against transformers in float32, token for token. Opt-in: the models are downloads.

    AGON_REAL=/folder python -m pytest --no-cov -n 0 -m real tests/test_real.py -s

Reads the Hugging Face folders $AGON_REAL/gemma3-270m (Gemma 3 270M, the base) and
$AGON_REAL/smollm2-135m (SmolLM2-135M-Instruct). About four minutes on two cores.

Random toys find a wrong formula. Real weights find what a toy is too small, too short or too mild for:
a window of 512, 18 layers in their real pattern, a vocabulary of 262144, trained norms and embeddings,
and a folder that transformers wrote from somebody else's file. Logits agree to about 1e-4, and the
best two candidates of a drawn token were never closer than 0.01 where this was written: equal tokens
are no luck.

Every test says what a bug would give; measured by making it, in transformers' config or in our code.
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
    number = np.arange(len(rows))
    out = sample(
        model, {"params": params}, Prompts(tokens, mask), row_keys(0, 0, 0, number, number),
        max_new_tokens=new_tokens, stop_ids=stop_ids, pad_id=0, temperature=0.0,
    )  # fmt: skip
    texts = [
        np.asarray(ids)[real].tolist() for ids, real in zip(out.tokens, np.asarray(out.mask), strict=True)
    ]
    assert out.finished.tolist() == [text[-1] in stop_ids for text in texts]
    return texts


def compare(hf, loaded, rows, new_tokens, stop_ids, decode):
    """Every row equals transformers' one; prints the texts."""
    model, params = loaded
    wanted = [theirs(hf, row, new_tokens) for row in rows]
    got = ours(model, params, rows, new_tokens, stop_ids)
    for row, mine, reference in zip(rows, got, wanted, strict=True):
        print(f"\n{len(row)} + {len(reference)} tokens: {decode(reference)!r}")
        assert len(reference) == new_tokens or reference[-1] in stop_ids
        assert mine == reference


def largest_difference(hf, loaded, ids):
    """Max |logit - transformers' logit| over one teacher-forced row."""
    import torch

    model, params = loaded
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
    """Three prompts of unequal lengths in one batch, 64 tokens each.

    First wrong token of each row: 14, 10, 14 with the global RoPE base in the layers with a window;
    11, 5, 14 with the layer pattern shifted by one; 4, 8, 3 with queries scaled 1.26 times; 19, 4, 6
    where a decoded token misses its own key; 0 in two rows where a prompt sees its padding.
    """
    tokenizer, hf, loaded = gemma
    rows = [tokenizer(prompt).input_ids for prompt in GEMMA_PROMPTS]
    assert len(set(map(len, rows))) == 3 and all(row[0] == tokenizer.bos_token_id for row in rows)
    compare(hf, loaded, rows, NEW_TOKENS, (tokenizer.eos_token_id,), tokenizer.decode)


def test_gemma_across_the_window(gemma):
    """A prompt beyond the window of 512, one that grows past it, and one that is mostly padding.

    First wrong token of the long prompt: 0 without the window, 2 where only decoding ignores it. A
    visible padding ruins the other two at once. A window off by one shows in the logits only.
    """
    tokenizer, hf, loaded = gemma
    rows = [tokenizer(text).input_ids for text in (story(70), story(56), GEMMA_PROMPTS[0])]
    assert len(rows[0]) > 600 > hf.config.sliding_window > len(rows[1]) > 500
    compare(hf, loaded, rows, 24, (tokenizer.eos_token_id,), tokenizer.decode)


def test_gemma_logits(gemma):
    """All logits of a text longer than the window, within 1e-3 at a spread of 5 (measured: 1e-4).

    A window of 511 or 513 moves logits by 0.7, embeddings scaled by a rounded factor (25.25, not
    25.298) by 0.06, the exact GELU instead of its tanh form by 0.02: no token need change.
    """
    tokenizer, hf, loaded = gemma
    ids = tokenizer(story(70)).input_ids
    assert len(ids) > hf.config.sliding_window + 64
    assert largest_difference(hf, loaded, ids) < 1e-3


def test_smollm_chat_ids(smollm):
    """The ids of a rendered chat are transformers' own: nothing added twice, no marker split up."""
    from transformers import AutoTokenizer

    folder, tokenizer, *_ = smollm
    reference = AutoTokenizer.from_pretrained(folder)
    for messages in SMOLLM_CHATS:
        wanted = reference.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
        assert tokenizer.render(messages) == (wanted, "")


def test_smollm_chats(smollm):
    """Four chats of unequal lengths in one batch; three end by themselves, one is cut at 64 tokens.

    With a RoPE base of 1e4 (a default, not the config's 1e5) three of them go wrong, one at once.
    """
    _, tokenizer, hf, loaded = smollm
    rows = [tokenizer.render(messages)[0] for messages in SMOLLM_CHATS]
    assert len(set(map(len, rows))) == len(rows)
    decode = lambda ids: tokenizer.decode(np.asarray([ids]), np.ones((1, len(ids)), bool))[0]
    compare(hf, loaded, rows, NEW_TOKENS, tokenizer.stop_ids, decode)


def test_smollm_logits(smollm):
    """All logits of a text of about 500 tokens, within 1e-3 at a spread of 7 (measured: 1e-4).

    An epsilon of 1e-6 (a default, not the config's 1e-5) moves logits by 0.01 and changes no token.
    """
    _, tokenizer, hf, loaded = smollm
    assert largest_difference(hf, loaded, tokenizer.encode(story(50))) < 1e-3
