"""What the arguments of estimates and tests must satisfy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def check_confidence(confidence: float) -> None:
    """Raises ValueError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be within (0, 1), got {confidence}")


def array(values: ArrayLike, axes: str, *, only_bool: bool = False) -> np.ndarray:
    """A non-empty array, bool or of finite floats, with one axis per word of `axes` ("seeds problems").

    Raises:
      ValueError: another number of axes, nothing in it, a value that is not finite, or not bool
        where only that is right.
    """
    values = np.asarray(values)
    shape = f"[{', '.join(axes.split())}]"
    if values.ndim != len(axes.split()) or not values.size:
        raise ValueError(f"need a non-empty array of shape {shape}, got shape {values.shape}")
    if values.dtype == bool:
        return values
    if only_bool:
        raise ValueError(f"outcomes {shape} must be bool, got {values.dtype}")
    values = values.astype(float)
    if not np.isfinite(values).all():
        raise ValueError(f"values {shape} must be finite, got {values[~np.isfinite(values)][0]}")
    return values


def pair(
    first: ArrayLike, second: ArrayLike, axes: str, *, only_bool: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Two such arrays of one shape.

    Raises:
      ValueError: as in `array`, or the shapes differ.
    """
    first, second = (array(values, axes, only_bool=only_bool) for values in (first, second))
    if first.shape != second.shape:
        raise ValueError(f"paired arrays must have one shape, got {first.shape} and {second.shape}")
    return first, second
