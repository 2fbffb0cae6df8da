"""Mixture of agents, untrained: two independent samples of the base, one reads the other.

    python -m agon_jax.main --config=configs/moa.py[:pieces] --workdir=runs/moa

Pieces (configs/pieces.py) choose another model or other problems. Cost: evaluation only, minutes on one GPU.
By the paper: 34 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("moa",)
    return c
