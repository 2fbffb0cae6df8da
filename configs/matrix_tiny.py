"""The experiment in miniature: every row of the paper's tables, several seeds, on the tiny base.

    python -m agon_jax.main matrix --config=configs/matrix_tiny.py

Five seeds of every method, ten of those that the main questions rest on, and `plain_pair`, the peer of the
shared opponent. Nothing here was tuned on the held-out problems. Cost: 70 runs of 120 steps of 128 rollouts,
under three hours on two CPU cores. Kill it whenever you like, the same command resumes. See docs/results.md.
"""

from agon_jax.config import default
from configs.pieces import compose


def get_config():
    c = compose(default(), "tiny")
    c.job = "matrix"
    c.matrix.title = "Agon in miniature: every method at equal rollouts"
    c.methods = (
        "zero_shot", "moa", "grpo", "grpo_cascade", "self_refine", "coop", "adv", "shared_opponent",
        "hidden_drafts", "margin", "fixed_roles", "tie_break", "plain_pair",
    )  # fmt: skip
    c.seeds = (0, 1, 2, 3, 4)
    c.matrix.more_methods = ("grpo", "grpo_cascade", "self_refine", "coop", "adv")
    c.matrix.more_seeds = (5, 6, 7, 8, 9)
    c.matrix.population = 5  # seeds that are trained in one program
    c.seed = 1  # of the splits: held-out problems that no trial run has seen
    c.grpo.steps = 120
    c.data.problems_per_step = 8  # 128 rollouts a step
    c.data.validation, c.data.heldout = 200, 800
    c.eval.rows_per_call = 640
    c.eval.samples, c.eval.sampled_problems = 4, 64
    c.eval.every = 40
    c.log.transcripts_every, c.log.tensorboard = 20, False
    return c
