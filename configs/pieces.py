"""Pieces of an experiment: which model, and which problems. A method file takes any of both:

    python -m agon_jax.main --config=configs/coop.py:qwen3_1.7b,code --workdir=runs/coop_code
    python -m agon_jax.main --config=configs/coop.py:tiny

Without pieces a method runs as the paper's main experiment: Qwen3-0.6B on DeepMath-hard (configs/adv.py).
"""

from __future__ import annotations

from collections.abc import Callable

from ml_collections import ConfigDict


def _model(hub_id: str, microbatches: int) -> Callable[[ConfigDict], None]:
    def apply(c: ConfigDict) -> None:
        c.base = hub_id
        c.grpo.microbatches = microbatches  # a microbatch of 128 / P / this many rows; memory only

    return apply


def math(c: ConfigDict) -> None:
    """DeepMath-hard; what overlaps MATH-500 and the test set of GSM8K is not trained on."""
    c.task, c.data.source, c.data.transfer = "math", "deepmath_hard", ("math500", "gsm8k_test")


def code(c: ConfigDict) -> None:
    """CodeContests, the easy ones; a program is right when it passes all tests, in a sandbox."""
    c.task, c.data.source, c.data.transfer = "code", "codecontests_easy", ()


def gym(c: ConfigDict) -> None:
    """Procedural problems of reasoning_gym, offline; needs `pip install -e '.[gym]'`."""
    c.task, c.data.source, c.data.transfer = "reasoning_gym", "reasoning_gym", ()
    c.data.path = "leg_counting:2000,chain_sum:2000"


def tiny(c: ConfigDict) -> None:
    """The bundled tiny base on its own world: a run takes minutes on two CPU cores."""
    c.base, c.dtype, c.mesh = "tiny", "float32", (-1, 1, 1)
    c.task, c.data.source, c.data.transfer = "operators", "operators", ()
    c.data.train, c.data.validation, c.data.heldout = 1280, 500, 2000
    c.data.problems_per_step = 16
    c.data.prompt_buckets, c.data.max_attempt_tokens = (9, 25), 14
    c.lora.noise = 1e-2
    c.sampling.max_new_tokens = 50
    c.grpo.steps, c.grpo.learning_rate, c.grpo.kl_weight = 80, 1e-3, 0.0
    c.grpo.completion_buckets, c.grpo.remat = (50,), False
    c.grpo.microbatches = 8  # parts that fit the processor's cache are half as fast again
    c.eval.temperature, c.eval.top_p, c.eval.rows_per_call = 1.0, 1.0, 256


PIECES: dict[str, Callable[[ConfigDict], None]] = {
    "qwen3_0.6b": _model("Qwen/Qwen3-0.6B", 8),
    "qwen3_1.7b": _model("Qwen/Qwen3-1.7B", 16),
    "qwen3_4b": _model("Qwen/Qwen3-4B", 32),
    "qwen3.5_2b": _model("Qwen/Qwen3.5-2B", 16),
    "gemma4_e4b": _model("google/gemma-4-E4B-it", 32),
    "math": math,
    "code": code,
    "gym": gym,
    "tiny": tiny,
}


def compose(c: ConfigDict, pieces: str) -> ConfigDict:
    """The config with each of the comma-separated pieces put in, in order."""
    for name in filter(None, pieces.split(",")):
        if name not in PIECES:
            raise ValueError(f"unknown piece {name!r}; use some of {', '.join(PIECES)}")
        PIECES[name](c)
    return c
