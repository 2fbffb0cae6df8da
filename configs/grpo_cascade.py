"""GRPO in two passes: trained as grpo, then it reads its own first answer. The fair control at
equal inference.

    python -m agon_jax.main --config=configs/grpo_cascade.py[:pieces] --workdir=runs/grpo_cascade

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 35 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("grpo_cascade",)
    return c
