"""Plain GRPO and Agon on the bundled tiny base, at equal rollouts, judged on held-out problems.

    python -m agon_jax.main --config=configs/quickstart.py

Cost: 2 x 80 steps x 256 rollouts, six minutes on two CPU cores.
Expected: zero-shot 17 %, GRPO 49 % in one pass and 56 % in two, Agon 54 % (one seed).
"""

from agon_jax.config import default
from configs.pieces import compose


def get_config():
    c = compose(default(), "tiny")
    c.job = "matrix"
    c.methods = ("zero_shot", "grpo", "grpo_cascade", "adv")
    return c
