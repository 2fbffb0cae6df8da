"""Cooperation: as adv, but a challenger is paid for being right alone.

    python -m agon_jax.main --config=configs/coop.py[:pieces] --workdir=runs/coop

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 46 % [40.3, 51.8] of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("coop",)
    return c
