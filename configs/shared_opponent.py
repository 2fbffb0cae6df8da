"""Shared opponent: a pair without exchange; the reward compares with one hidden draft a problem,
which group-relative advantages cancel.

    python -m agon_jax.main --config=configs/shared_opponent.py[:pieces] --workdir=runs/shared_opponent

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 32 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("shared_opponent",)
    return c
