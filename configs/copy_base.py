"""Makes the five bases of the copy world (docs/copy_or_solve.md) and measures each.

    python -m agon_jax.main --config=configs/copy_base.py --workdir=runs/copy_base

Cost: about a minute and a half of two quiet cores a base.
"""

from configs.copy_world import get_config as copy_world


def get_config():
    c = copy_world()
    c.job = "copy_base"
    c.copy_base.points = ("below", "lower", "inside", "upper", "above")  # a folder each
    c.copy_base.solve_hard = (0.585, 0.48, 0.43, 0.36, 0.28)  # of the facts, as a challenger; sets p
    c.copy_base.draft_hard = 0.165  # of the facts, as a drafter; sets q
    c.copy_base.draft_slip = 0.9  # a fact that is hard in a draft is executed wrongly
    c.copy_base.solve_slip = 0.5  # a fact that is hard for a challenger
    c.copy_base.copy = 0.45  # of the challengers, whatever the draft: the urge to copy
    c.copy_base.challenger_share = 0.6  # rows whose prompt holds a rival's attempt
    c.copy_base.steps = 1000
    c.copy_base.learning_rate = 5e-3  # peak; warm-up, then cosine
    c.copy_base.batch_size = 64
    return c
