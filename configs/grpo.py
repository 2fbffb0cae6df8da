"""Plain GRPO: one policy, 2K rollouts a problem, no exchange.

    python -m agon_jax.main --config=configs/grpo.py[:pieces] --workdir=runs/grpo

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 30 % [25.0, 35.4] of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("grpo",)
    return c
