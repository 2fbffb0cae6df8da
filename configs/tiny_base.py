"""Makes the bundled tiny base: a 0.6M-parameter Qwen3 from synthetic reasoning traces.

    python -m agon_jax.main --config=configs/tiny_base.py --workdir=agon_jax/assets/tiny

Cost: 3,350 steps of 64 rows at 0.4 s each on two slow CPU cores: about 25 minutes.
Result: 15 to 30 % of held-out problems of the operators world, with a latent skill under it.
"""

from agon_jax.config import default


def get_config():
    c = default()
    c.job = "tiny_base"
    c.tiny_base.phases = ("mixed", "skill", "noise")  # see agon_jax/tasks/operators_traces.py
    c.tiny_base.steps = (1200, 2000, 150)
    c.tiny_base.learning_rates = (4e-3, 3e-3, 1e-3)  # peak; warm-up, then cosine
    c.tiny_base.batch_size = 64
    c.tiny_base.challenger_share = 0.4  # rows whose prompt holds a rival's attempt
    c.tiny_base.short_share = 0.25  # rows with one operand fewer
    return c
