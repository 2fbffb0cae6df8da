"""Self-refinement: one policy, K drafts and K refinements of its own summaries.

    python -m agon_jax.main --config=configs/self_refine.py[:pieces] --workdir=runs/self_refine

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 32 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("self_refine",)
    return c
