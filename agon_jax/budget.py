"""Was the budget of two methods the same? An audit of what their training spent."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

QUANTITIES = ("rollouts", "generated_tokens", "prefilled_tokens")


def matched(
    training: Mapping[str, Mapping[str, int]],
    first: str,
    second: str,
    quantity: str = "rollouts",
    tolerance: float = 0.01,
) -> bool:
    """Whether two methods spent the same: they differ by at most `tolerance` of the larger.

    Args:
      training: {method: {quantity: amount}}; other fields are ignored.
      first, second: methods; the order does not matter.
      quantity: one of QUANTITIES.
      tolerance: a share, 0.01 for 1 %.

    Raises:
      ValueError: a method or a quantity is missing, an amount is negative, or tolerance is not
        within [0, 1).
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be a share within [0, 1), got {tolerance}")
    a, b = (_spent(training, method, quantity) for method in (first, second))
    return abs(a - b) <= tolerance * max(a, b)


def audit(training: Mapping[str, Mapping[str, int]], *, tolerance: float = 0.01) -> list[dict[str, Any]]:
    """Every pair of methods, in the order given, times every quantity, as one row each.

    Returns:
      Rows {first, second, quantity, ratio, matched}. ratio is what the second spent over what the
      first spent: 1 if neither spent any, None if only the first spent none.

    Raises:
      ValueError: as `matched`.
    """
    return [
        {
            "first": first,
            "second": second,
            "quantity": quantity,
            "ratio": _ratio(_spent(training, first, quantity), _spent(training, second, quantity)),
            "matched": matched(training, first, second, quantity, tolerance),
        }
        for first, second in itertools.combinations(training, 2)
        for quantity in QUANTITIES
    ]


def _ratio(first: int, second: int) -> float | None:
    if first == second:
        return 1.0
    return second / first if first else None


def _spent(training: Mapping[str, Mapping[str, int]], method: str, quantity: str) -> int:
    if method not in training:
        raise ValueError(f"no training of {method!r} is recorded, only of {', '.join(training) or 'none'}")
    if quantity not in training[method]:
        raise ValueError(
            f"training of {method!r} records no {quantity!r}, only {', '.join(training[method])}"
        )
    if (amount := training[method][quantity]) < 0:
        raise ValueError(f"training of {method!r} records {quantity} = {amount}, which cannot be negative")
    return amount
