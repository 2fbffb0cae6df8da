"""Zero-shot: the untrained base, one pass.

    python -m agon_jax.main --config=configs/zero_shot.py[:pieces] --workdir=runs/zero_shot

Pieces (configs/pieces.py) choose another model or other problems. Cost: evaluation only, minutes on one GPU.
By the paper: 23 % [18.4, 28.3] of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("zero_shot",)
    return c
