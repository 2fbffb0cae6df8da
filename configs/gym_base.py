"""Makes a tiny base for the families of reasoning_gym: what is Mary to Zoe?

    python -m agon_jax.main --config=configs/gym_base.py --workdir=runs/gym_base

Needs `pip install -e '.[gym]'`. Cost: 2,180 steps of 32 rows at 0.17 s each on two slow CPU cores: under
7 minutes.
"""

from agon_jax.config import default


def get_config():
    c = default()
    c.job = "gym_base"
    c.seed = 1  # of the splits and the base: the knobs below were chosen on the held-out problems of seed 0
    c.task, c.data.source, c.prompts = "reasoning_gym", "reasoning_gym", "terse"
    c.data.path = "family_relationships:12000?max_family_size=6"
    c.data.train, c.data.validation, c.data.heldout = 9000, 200, 800
    c.gym_base.phases = ("read", "skill", "noise")  # see agon_jax/tasks/gym_traces.py
    c.gym_base.steps = (1500, 600, 80)
    c.gym_base.learning_rates = (5e-3, 3e-3, 1e-3)  # peak; warm-up, then cosine
    c.gym_base.batch_size = 32
    c.gym_base.challenger_share = 0.5  # rows whose prompt holds a rival's attempt
    return c
