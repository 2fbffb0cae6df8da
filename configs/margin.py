"""Margin ablation: as adv, but paid c - c_d instead of the conversion bonus.

    python -m agon_jax.main --config=configs/margin.py[:pieces] --workdir=runs/margin

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 49 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("margin",)
    return c
