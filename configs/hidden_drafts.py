"""Hidden drafts: as adv, but the rival's draft is used in the reward alone and never shown.

    python -m agon_jax.main --config=configs/hidden_drafts.py[:pieces] --workdir=runs/hidden_drafts

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
The paper names it as future work and has no figure.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("hidden_drafts",)
    return c
