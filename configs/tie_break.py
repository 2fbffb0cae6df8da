"""Length tie-break: as adv, and the shorter one is paid more when both are right.

    python -m agon_jax.main --config=configs/tie_break.py --workdir=runs/tie_break

Cost: as configs/adv.py. By the paper: 60 % of 300 held-out problems at 2.6k tokens.
"""

from configs.adv import get_config as adv


def get_config():
    c = adv()
    c.methods = ("tie_break",)
    return c
