"""Copy or solve: the world in which a wrong draft cannot be seen (docs/copy_or_solve.md).

python -m agon_jax.main --config=configs/copy_base.py --workdir=runs/copy_base
python -m agon_jax.main --config=configs/copy_world.py --config.base=runs/copy_base/inside
"""

from agon_jax.config import default


def get_config():
    c = default()
    c.job = "matrix"
    c.methods = ("coop", "adv")
    c.base = "runs/copy_base/inside"  # below | lower | inside | upper | above
    c.task = "copy_world"
    c.data.source = "copy_world"
    c.data.train = 10000
    c.data.validation = 500
    c.data.heldout = 2000
    c.data.problems_per_step = 16
    c.data.prompt_buckets = (7, 11)
    c.data.max_attempt_tokens = 2  # a number and its mark
    c.lora.noise = 1e-2
    c.sampling.max_new_tokens = 17
    c.grpo.steps = 80
    c.grpo.learning_rate = 1e-3
    c.grpo.kl_weight = 0.0
    c.grpo.completion_buckets = (17,)
    c.grpo.chunk = 17
    c.grpo.remat = False
    c.grpo.microbatches = 4  # parts that fit the processor's cache are faster
    c.eval.temperature = 1.0
    c.eval.top_p = 1.0
    c.eval.rows_per_call = 256
    c.log.checkpoint_every = 80
    return c
