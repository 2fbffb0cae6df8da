"""Plain GRPO and Agon on the bundled tiny base, at equal rollouts, judged on held-out problems.

    python -m agon_jax.main --config=configs/quickstart.py

Cost: 2 x 80 steps x 256 rollouts, five minutes on two CPU cores.
Expected: zero-shot 17 %, GRPO 49 % in one pass and 56 % in two, Agon 55 % (one seed).
"""

from agon_jax.config import default


def get_config():
    c = default()
    c.job = "compare"
    c.methods = ("grpo", "adv")
    c.data.train = 1280
    c.data.validation = 500
    c.data.heldout = 2000
    c.data.problems_per_step = 16
    c.data.prompt_buckets = (9, 25)
    c.data.max_attempt_tokens = 14
    c.lora.noise = 1e-2
    c.sampling.max_new_tokens = 50
    c.grpo.steps = 80
    c.grpo.learning_rate = 1e-3
    c.grpo.kl_weight = 0.0
    c.grpo.completion_buckets = (50,)
    c.grpo.remat = False
    c.grpo.microbatches = 8  # parts that fit the processor's cache are half as fast again
    c.eval.temperature = 1.0
    c.eval.top_p = 1.0
    return c
