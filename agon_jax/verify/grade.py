"""The verdict on one answer."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Grade:
    """A verdict.

    Attributes:
      correct: True only when the answer was proved right.
      extracted: the part of the completion that was judged, None when there was none.
      reason: why, in a few words; a stable text that can be counted.
    """

    correct: bool
    extracted: str | None
    reason: str
