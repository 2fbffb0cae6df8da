"""Two policies that never meet: plain prompts, each paid for being right alone; the peer of shared_opponent.

    python -m agon_jax.main --config=configs/plain_pair.py[:pieces] --workdir=runs/plain_pair

Pieces (configs/pieces.py) choose another model or other problems. Cost: as configs/adv.py.
"""

from configs.adv import get_config as adv


def get_config(pieces=""):
    c = adv(pieces)
    c.methods = ("plain_pair",)
    return c
