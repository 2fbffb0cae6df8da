"""Fixed roles: as adv, but policy A always drafts.

    python -m agon_jax.main --config=configs/fixed_roles.py --workdir=runs/fixed_roles

Cost: as configs/adv.py. By the paper: 52 % of 300 held-out problems.
"""

from configs.adv import get_config as adv


def get_config():
    c = adv()
    c.methods = ("fixed_roles",)
    return c
