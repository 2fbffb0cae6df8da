"""The main methods on the families of reasoning_gym, three seeds, on the base of configs/gym_base.py.

    python -m agon_jax.main matrix --config=configs/matrix_gym.py

Needs that base in runs/gym_base. Cost: 56 steps of 128 rollouts at 0.7 s a seed on two slow CPU cores, for
three trained methods and three seeds: 6 minutes, and a few more to compile and to evaluate. Nothing was
tuned on its held-out problems: the trials were on the splits of another seed. Result: docs/results.md.
"""

from configs.gym_base import get_config as gym_base


def get_config():
    c = gym_base()  # its data and its seed: else the base could have seen what is held out here
    c.job = "matrix"
    c.base = "runs/gym_base"
    c.matrix.title = "Families of reasoning_gym at equal rollouts"
    c.methods = ("zero_shot", "grpo", "grpo_cascade", "coop", "adv")
    c.seeds = (0, 1, 2)
    c.matrix.population = 3  # seeds that are trained in one program
    c.data.problems_per_step = 8  # 128 rollouts a step
    c.data.prompt_buckets, c.data.max_attempt_tokens = (60, 70), 8
    c.lora.noise = 1e-2
    c.sampling.max_new_tokens = 24
    c.grpo.steps, c.grpo.learning_rate, c.grpo.kl_weight = 56, 2e-3, 0.0
    c.grpo.completion_buckets, c.grpo.remat = (24,), False
    c.grpo.microbatches = 4
    c.eval.temperature, c.eval.top_p, c.eval.rows_per_call = 1.0, 1.0, 400
    c.log.transcripts_every, c.log.tensorboard = 14, False
    return c
