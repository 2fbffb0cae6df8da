"""Makes a tiny base from supervised traces: an ordinary Hugging Face folder of a small Qwen3.

The worlds' own makers say which words there are, how large the model is and what it learns from.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_dtypes
from rich.console import Console
from rich.progress import Progress

from agon_jax import sft, sharding
from agon_jax.models.convert import save_hf
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import from_hf
from agon_jax.text.tokenizer import Tokenizer
from agon_jax.types import PyTree

STOP, PAD = "<|end|>", "<pad>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
FORMAT = ("<unk>", "<think>", "</think>", "<answer>", "</answer>", "<attempt>", "</attempt>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|> {{ message.content }} "
    "{% if message.role == 'assistant' %}<|end|> {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "use_sliding_window": False,
    "dtype": "bfloat16",
}


@dataclasses.dataclass(frozen=True)
class Phase:
    """One phase of training.

    Attributes:
      learning_rate: its peak.
      draw: one example.
    """

    name: str
    steps: int
    learning_rate: float
    draw: Callable[[random.Random], sft.Example]


def vocabulary(words: Sequence[str]) -> list[str]:
    """All tokens in the order of their ids: control tokens, those of the format, the world's own."""
    return [PAD, STOP, *ROLES, *FORMAT, *words]


def write_tokenizer(
    folder: pathlib.Path, words: Sequence[str], sizes: dict[str, int], marks: str = ""
) -> None:
    """A word-level tokenizer with a chat template, and the two configs beside it.

    Args:
      folder: exists.
      words: of the world, one token each.
      sizes: fields of config.json that say how large the model is.
      marks: characters that are words of their own wherever they stand (`Mary.` is two words).
    """
    from tokenizers import AddedToken, Regex
    from tokenizers import Tokenizer as Core
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Sequence as InTurn
    from tokenizers.pre_tokenizers import Split, WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokens = vocabulary(words)
    core = Core(WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    if marks:
        split = Split(Regex(f"[{re.escape(marks)}]"), "isolated")
        core.pre_tokenizer = InTurn([WhitespaceSplit(), split])
    core.add_special_tokens([AddedToken(token, special=True) for token in (PAD, STOP, *ROLES)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=STOP,
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(str(folder))
    ends = {"eos_token_id": tokens.index(STOP)}
    for name, content in (
        ("config.json", _CONFIG | sizes | ends | {"pad_token_id": tokens.index(PAD)}),
        ("generation_config.json", ends | {"do_sample": True, "temperature": 1.0}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def initial_params(model: Decoder, seed: int) -> PyTree:
    """Random params; the tied embedding is large as an input and small as an output."""
    params = nn.meta.unbox(model.init(jax.random.key(seed), jnp.zeros((1, 1), jnp.int32))["params"])
    c, depth = model.config, model.config.num_layers

    def scale(path, leaf):
        names = [entry.key for entry in path]
        if names[-2:] in (["o_proj", "kernel"], ["down_proj", "kernel"]):
            return leaf * (0.5 if depth <= 8 else (2 * depth) ** -0.5)
        return leaf

    params = jax.tree_util.tree_map_with_path(scale, params)
    params["embed_tokens"] = params["embed_tokens"] * (0.5 / 0.02)
    params["norm"]["scale"] = jnp.full((c.hidden_size,), 0.1)
    return params


def build(
    out: pathlib.Path,
    words: Sequence[str],
    sizes: dict[str, int],
    phases: Sequence[Phase],
    *,
    batch_size: int,
    bucket: int = 12,
    marks: str = "",
    seed: int,
    console: Console,
    mesh: jax.sharding.Mesh,
) -> None:
    """Train the phases one after another and write the folder (again after every phase).

    Args:
      out: folder to write.
      words, sizes, marks: see `write_tokenizer`.
      phases: what is learnt, in order.
      batch_size, bucket: rows of a step; their width is a multiple of the bucket.
      seed: of init and data.
      console: where progress goes.
      mesh: rows are split over it.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(out, words, sizes, marks)
    tokenizer = Tokenizer(out)
    model = Decoder(from_hf(_CONFIG | sizes), dtype=jnp.float32, num_ids=tokenizer.num_ids)
    params = jax.device_put(initial_params(model, seed), sharding.replicated(mesh))
    for number, phase in enumerate(phases):
        optimizer = sft.optimizer(phase.steps, phase.learning_rate)
        opt_state = jax.jit(optimizer.init)(params)
        step = sft.make_step(model, optimizer)
        batches = sft.batches(
            phase.draw, tokenizer, batch_size=batch_size, bucket=bucket, seed=seed * 100 + number, mesh=mesh
        )
        with Progress(*Progress.get_default_columns(), console=console) as progress:
            bar = progress.add_task(phase.name, total=phase.steps)
            for i in range(phase.steps):
                params, opt_state, loss = step(params, opt_state, *next(batches))
                if i % 50 == 0 or i == phase.steps - 1:
                    progress.update(bar, completed=i + 1, description=f"{phase.name}: loss {loss:.3f}")
        console.print(f"{phase.name}: {phase.steps} steps, last loss {float(loss):.4f}")
        save_hf(out, model, params, ml_dtypes.bfloat16)
