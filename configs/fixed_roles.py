"""Fixed roles: as adv, but policy A always drafts.

    python -m agon_jax.main --config=configs/fixed_roles.py[:pieces] --workdir=runs/fixed_roles

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
By the paper: 52 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("fixed_roles",)
    return c
