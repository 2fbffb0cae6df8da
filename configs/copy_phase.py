"""When does competition pay? The phase diagram of copying and solving (docs/copy_or_solve.md).

    python -m agon_jax.main --config=configs/copy_phase.py
    python -m agon_jax.main --config=configs/copy_phase.py:held

Five bases across the band, the bonus at 0 (coop), 0.5, 1 and 2, five seeds each, judged after 80 and 160
steps; controls: plain GRPO, and cooperation with a floor on copying. Bases are made first. The same
command resumes. With `held` nothing is learnt from drafts, so that q stands still, as the static theory
has it.
"""

from configs.copy_base import get_config as copy_base


def get_config(variant=""):
    if variant not in ("", "held"):
        raise ValueError(f"unknown variant {variant!r}; use held, or none")
    c = copy_base()
    c.job = "phase"
    c.methods = ("coop", "adv_half", "adv", "adv_double", "coop_floor", "grpo", "grpo_cascade")
    c.seeds = (0, 1, 2, 3, 4)
    c.game.learn_drafts = variant != "held"
    if variant == "held":
        c.methods = c.methods[:5]  # a single policy has nothing to learn from then
    c.data.problems_per_step = 8  # 128 rollouts a step
    c.data.validation, c.data.heldout = 500, 500
    c.grpo.steps = 160
    c.grpo.schedule = "constant"  # so that 80 steps are the first half of 160
    c.eval.every = 40
    c.eval.rows_per_call = 1280
    c.log.checkpoint_every, c.log.transcripts_every, c.log.tensorboard = 40, 40, False
    return c
