"""Makes the bundled tiny base: an ordinary Hugging Face folder of a 0.6M-parameter Qwen3.

Three phases of supervised traces (see `tasks/operators_traces.py`): mixed, skill, noise.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_dtypes
from ml_collections import ConfigDict
from rich.console import Console
from rich.progress import Progress

from agon_jax import sft, sharding
from agon_jax.models.convert import save_hf
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import from_hf
from agon_jax.tasks.operators import World
from agon_jax.tasks.operators_traces import PHASES, Writer
from agon_jax.text.tokenizer import Tokenizer

STOP, PAD = "<|end|>", "<pad>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
WORDS = ("<unk>", "<think>", "</think>", "<answer>", "</answer>", "<attempt>", "</attempt>",
         "+", "-", "=", "?", "ok", "no")  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|> {{ message.content }} "
    "{% if message.role == 'assistant' %}<|end|> {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 128,  # a few rows more than ids, as in the real checkpoints
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
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
class PhasePlan:
    """Length of one phase of training."""

    phase: str
    steps: int
    learning_rate: float


def write_tokenizer(folder: pathlib.Path, world: World) -> None:
    """A word-level tokenizer with one token per number and a chat template."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Core
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = [PAD, STOP, *ROLES, *WORDS, *map(str, range(world.max_total + 1))]
    core = Core(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    core.add_special_tokens([AddedToken(word, special=True) for word in (PAD, STOP, *ROLES)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=STOP,
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(str(folder))
    stop_id = words.index(STOP)
    for name, content in (
        ("config.json", CONFIG | {"eos_token_id": stop_id, "pad_token_id": words.index(PAD)}),
        ("generation_config.json", {"eos_token_id": stop_id, "do_sample": True, "temperature": 1.0}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def initial_params(model: Decoder, seed: int):
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
    plans: list[PhasePlan],
    *,
    batch_size: int,
    challenger_share: float,
    short_share: float,
    seed: int,
    console: Console,
    mesh: jax.sharding.Mesh,
) -> None:
    """Train the phases one after another and write the folder (again after every phase).

    Args:
      out: folder to write.
      plans: the phases.
      batch_size: rows a step.
      challenger_share: share of examples with a challenger's prompt.
      short_share: share of examples with one operand fewer.
      seed: of init and data.
      console: where progress goes.
      mesh: rows are split over it.
    """
    world = World()
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(out, world)
    tokenizer = Tokenizer(out)
    model = Decoder(from_hf(CONFIG), dtype=jnp.float32, num_ids=tokenizer.num_ids)
    params = jax.device_put(initial_params(model, seed), sharding.replicated(mesh))
    short = dataclasses.replace(world, num_operands=world.num_operands - 1)
    for number, plan in enumerate(plans):
        writers = [Writer(PHASES[plan.phase], w) for w in (world, short)]

        def draw(rng: random.Random, writers=writers) -> sft.Example:
            writer = writers[rng.random() < short_share]
            return writer.example(rng, challenger=rng.random() < challenger_share)

        optimizer = sft.optimizer(plan.steps, plan.learning_rate)
        opt_state = jax.jit(optimizer.init)(params)
        step = sft.make_step(model, optimizer)
        stream = sft.batches(draw, tokenizer, batch_size=batch_size, seed=seed * 100 + number, mesh=mesh)
        with Progress(*Progress.get_default_columns(), console=console) as progress:
            bar = progress.add_task(plan.phase, total=plan.steps)
            for i in range(plan.steps):
                params, opt_state, loss = step(params, opt_state, *next(stream))
                if i % 50 == 0 or i == plan.steps - 1:
                    progress.update(bar, completed=i + 1, description=f"{plan.phase}: loss {loss:.3f}")
        console.print(f"{plan.phase}: {plan.steps} steps, last loss {float(loss):.4f}")
        save_hf(out, model, params, ml_dtypes.bfloat16)


def run(config: ConfigDict, workdir: pathlib.Path, console: Console) -> None:
    """The job `tiny_base`: writes the folder to the work directory."""
    c = config.tiny_base
    plans = [PhasePlan(*plan) for plan in zip(c.phases, c.steps, c.learning_rates, strict=True)]
    build(
        workdir,
        plans,
        batch_size=c.batch_size,
        challenger_share=c.challenger_share,
        short_share=c.short_share,
        seed=config.seed,
        console=console,
        mesh=sharding.make_mesh(config.mesh),
    )
    console.print(f"Written to {workdir}")
