"""Names written next to the points of a plot, clear of each other and of the error bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from agon_jax.report.styles import colour


def name_points(axes: Axes, names: Sequence[str], points: np.ndarray, bars: np.ndarray) -> None:
    """Writes each name near its point with a thin leader.

    Args:
      axes: settled otherwise: limits and layout do not change any more.
      names: of P points.
      points: [P, 2] in data coordinates.
      bars: [P, 2, 2], the corners of what must stay visible around each point.
    """
    axes.figure.draw_without_rendering()  # settles the layout: pixel positions are final from here
    frame, scale = axes.get_window_extent(), axes.figure.dpi / 72  # pixels per point
    pixels = axes.transData.transform
    taken = [Bbox(pixels(bar)).padded(6 * scale) for bar in bars]
    for name, point, at in zip(names, points, pixels(points), strict=True):
        label = axes.annotate(
            name, point, (0, 0), textcoords="offset points", ha="center", va="center", fontsize=10,
            zorder=1 - 0.001 * len(taken), color=colour("ink"), parse_math=False,
            bbox={"fc": colour("paper"), "ec": "none", "pad": 0.5},
            arrowprops={"arrowstyle": "-", "color": colour("grey"), "lw": 0.5, "shrinkA": 0, "shrinkB": 9},
        )  # fmt: skip
        best = _offset(at, Text.get_window_extent(label).size / 2, taken, frame, scale)
        label.set(position=best / scale, in_layout=False)
        half = Text.get_window_extent(label).size / 2
        taken.append(Bbox([at + best - half, at + best + half]))


def _offset(at: np.ndarray, half: np.ndarray, taken: list[Bbox], frame: Bbox, scale: float) -> np.ndarray:
    """Where the middle of a label of half-size `half` goes, from `at`, in pixels: the cheapest place."""

    def cost(offset: np.ndarray) -> float:
        box = Bbox([at + offset - half, at + offset + half])
        hidden = box.count_overlaps(taken) + (frame.count_contains(box.get_points()) < 2)
        crossed = sum(map(Path([at, at + offset]).intersects_bbox, taken))
        distance = np.hypot(*np.maximum(np.abs(offset) - half, 0)) + 0.1 * np.abs(offset[1])
        return 1e4 * hidden + 100 * crossed + distance

    sides = [sign * (half[0] + gap * scale) for gap in (9, 30, 60) for sign in (1, -1)]
    return min((np.array([dx, dy * scale]) for dx in [*sides, 0] for dy in range(-160, 161, 4)), key=cost)
