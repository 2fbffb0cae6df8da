"""Estimates, intervals and tests. SciPy does the mathematics; what the sample is names the module."""

from agon_jax.stats.outcomes import disagreement, flip_matrix, majority_at_k, pass_at_k
from agon_jax.stats.problems import clopper_pearson, mcnemar_exact, paired_bootstrap
from agon_jax.stats.seeds import (
    SeedDifference,
    hierarchical_bootstrap,
    paired_problems,
    paired_seeds,
    required_seeds,
    seed_interval,
)

__all__ = [
    "SeedDifference",
    "clopper_pearson",
    "disagreement",
    "flip_matrix",
    "hierarchical_bootstrap",
    "majority_at_k",
    "mcnemar_exact",
    "paired_bootstrap",
    "paired_problems",
    "paired_seeds",
    "pass_at_k",
    "required_seeds",
    "seed_interval",
]
