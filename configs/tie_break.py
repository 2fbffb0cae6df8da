"""Length tie-break: as adv, and the shorter one is paid more when both are right.

    python -m agon_jax.main --config=configs/tie_break.py[:pieces] --workdir=runs/tie_break

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 60 % at 2.6k tokens of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("tie_break",)
    return c
