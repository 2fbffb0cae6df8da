"""The figures of a report. Each is made of panels, which a page may also show one by one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.ndimage import uniform_filter1d

from agon_jax.report import schema
from agon_jax.report.formats import count, interval, percent
from agon_jax.report.labels import name_points
from agon_jax.report.styles import colour, figure, style, svg, tidy
from agon_jax.report.tables import accuracy

MOST_POINTS = 200  # of a curve: more cannot be seen

_TRAINING = (("draft_pass_rate", "Pass rate of the drafts", True),)
_TRAINING += (("challenge_pass_rate", "Pass rate of the challenges", True),)
_DIAGNOSTICS = (
    ("reward", "Reward", False),
    ("kl", "KL to the base", False),
    ("draft_length", "Length of the drafts, tokens", False),
    ("challenge_length", "Length of the challenges, tokens", False),
    ("zero_variance", "Groups without a signal", True),
    ("truncated", "Cut off", True),
    ("conversion_rate", "Conversion: wrong draft, right challenge", True),
    ("keep_rate", "Kept: right draft, right challenge", True),
    ("copy_rate", "Challenge gives the draft's answer", True),
    ("pair_divergence", "Divergence of the two policies", False),
    ("boundary_margin", "Margin of solving over copying", False),
)  # (field of the curve, title, whether it is a share)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
      draw: draws it on empty axes.
      alt: what it shows, in words.
      keys: of the methods drawn, for a legend.
    """

    title: str
    draw: Callable[[Axes], None]
    alt: str
    keys: tuple[str, ...]
    size: tuple[float, float] = (4.6, 3.1)  # inches

    def svg(self, prefix: str) -> str:
        """The panel alone, as inline SVG."""
        drawn = figure(*self.size)
        self.draw(drawn.add_subplot())
        return svg(drawn, prefix)


def accuracy_length(results: dict) -> list[Panel]:
    """Accuracy against the mean length of the final stage, as in the paper's figure 7."""
    present = schema.methods(results)
    marks = [_mark(key, method) for key, method in present.items()]
    if not marks:
        return []
    title = "Accuracy against length"
    alt = "; ".join(
        f"{mark.name} {percent(mark.mean)} % {interval(mark.low, mark.high)} at {count(mark.length)} tokens"
        for mark in marks
    )
    return [
        Panel(
            title, lambda axes: _scatter(axes, title, marks), f"{title}: {alt}.", tuple(present), (7.2, 4.8)
        )
    ]


@dataclasses.dataclass(frozen=True)
class _Mark:
    key: str
    name: str
    mean: float
    low: float
    high: float
    over: str
    length: float
    runs: np.ndarray  # [S, 2] length and accuracy of each seed


def _mark(key: str, method: dict) -> _Mark:
    rows = [schema.headline(member) for member in method["members"]]
    lengths = np.array([row["mean_length"] for row in rows])
    runs = np.stack([lengths, schema.outcomes(rows).mean(axis=1)], axis=1)
    return _Mark(key, method["name"], *accuracy(rows), float(lengths.mean()), runs)


def _scatter(axes: Axes, title: str, marks: list[_Mark]) -> None:
    over = " or ".join(sorted({mark.over for mark in marks}))
    tidy(axes, title, "mean length of the final stage (tokens)", f"pass@1 (%), 95 % interval over {over}")
    axes.margins(x=0.22, y=0.12)
    corners = []
    for mark in marks:
        look = style(mark.key)
        tint = colour(look.colour)
        if len(mark.runs) > 1:
            axes.plot(mark.runs[:, 0], 100 * mark.runs[:, 1], ".", color=tint, alpha=0.45, markersize=5)
        mean, low, high = (100 * value for value in (mark.mean, mark.low, mark.high))
        axes.errorbar(
            mark.length, mean, np.clip([[mean - low], [high - mean]], 0, None), fmt=look.marker, capsize=3,
            markersize=12 if look.marker == "*" else 8, markeredgecolor=colour("paper"), color=tint,
            ecolor=tint, elinewidth=1.5,
        )  # fmt: skip
        left, right = mark.runs[:, 0].min(), mark.runs[:, 0].max()
        corners.append([(left, low), (right, high)])
    points = np.array([(mark.length, 100 * mark.mean) for mark in marks])
    name_points(axes, [mark.name for mark in marks], points, np.array(corners))


def training(results: dict) -> list[Panel]:
    """Pass rates of the training rollouts."""
    return list(_curves(results, _TRAINING))


def diagnostics(results: dict) -> list[Panel]:
    """Whatever else was logged over training."""
    return list(_curves(results, _DIAGNOSTICS))


def _curves(results: dict, quantities: tuple[tuple[str, str, bool], ...]) -> Iterator[Panel]:
    """A panel for each quantity that any method logged."""
    for field, title, share in quantities:
        runs = {
            key: found
            for key, method in schema.methods(results).items()
            if not method.get("trained_as") and (found := list(schema.curves(method, field)))
        }
        if runs:
            names = {key: results["methods"][key]["name"] for key in runs}
            last = [f"{names[key]} {_last(found, share)}" for key, found in runs.items()]
            alt = f"{title} over training steps, at the end: {'; '.join(last)}."
            title = f"{title} (%)" if share else title
            draw = lambda axes, title=title, runs=runs, share=share: _lines(axes, title, runs, share)
            yield Panel(title, draw, alt, tuple(runs))


def _last(runs: list[tuple[np.ndarray, np.ndarray]], share: bool) -> str:
    value = np.mean([_smooth(values)[-1] for _, values in runs])
    return f"{percent(value)} %" if share else f"{value:.3g}"


def _lines(axes: Axes, title: str, runs: dict[str, list[tuple[np.ndarray, np.ndarray]]], share: bool) -> None:
    tidy(axes, title, "training step", "")
    scale = 100 if share else 1
    for key, curves in runs.items():
        look = style(key)
        steps, mean, low, high = band(curves)
        line = {"color": colour(look.colour), "linestyle": look.dashes}
        axes.plot(steps, scale * mean, **line, linewidth=1.8)
        if len(curves) > 1:
            axes.fill_between(steps, scale * low, scale * high, color=line["color"], alpha=0.15, linewidth=0)


def band(curves: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """(steps, mean, lowest, highest) of smoothed curves; where a seed has no value the others stand.

    Args:
      curves: (steps, values) of every seed.

    Returns:
      Four [N] arrays, N at most `MOST_POINTS`.
    """
    smoothed = [dict(zip(steps, _smooth(values), strict=True)) for steps, values in curves]
    steps = np.array(sorted(set().union(*smoothed)))
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round().astype(int))]
    at = [[curve[step] for curve in smoothed if step in curve] for step in steps]
    return steps, *(np.array([reduce(values) for values in at]) for reduce in (np.mean, np.min, np.max))


def _smooth(values: np.ndarray) -> np.ndarray:
    """The moving mean over about a tenth of the run; an odd window has a centre."""
    return uniform_filter1d(values, (len(values) // 10) | 1, mode="nearest")


def evaluations(results: dict) -> list[Panel]:
    """pass@1 at checkpoints during training, a panel for each method, a line for each way to answer."""
    panels = []
    for key, method in schema.methods(results).items():
        ways: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for member in method["members"]:
            points = member.get("evaluations") or ()
            for way in dict.fromkeys(name for point in points for name in point["rates"]):
                pairs = [(point["step"], point["rates"][way]) for point in points if way in point["rates"]]
                ways.setdefault(way, []).append(tuple(np.array(pairs, float).T))
        if ways:
            title = f"{method['name']}: pass@1 (%)"
            final = [
                f"{way} {percent(np.mean([values[-1] for _, values in runs]))} %"
                for way, runs in ways.items()
            ]
            alt = f"{method['name']}, pass@1 at checkpoints, at the end: {'; '.join(final)}."
            draw = lambda axes, title=title, ways=ways, key=key: _checkpoints(axes, title, ways, key)
            panels.append(Panel(title, draw, alt, ()))
    return panels


def _checkpoints(axes: Axes, title: str, ways: dict, key: str) -> None:
    tidy(axes, title, "training step", "")
    for (way, runs), dashes in zip(ways.items(), ("-", "--", ":", "-.") * len(ways), strict=False):
        by_step: dict[float, list[float]] = {}
        for steps, values in runs:
            for step, value in zip(steps, 100 * values, strict=True):
                by_step.setdefault(step, []).append(value)
        steps = sorted(by_step)
        line = {"color": colour(style(key).colour), "linestyle": dashes}
        axes.plot(steps, [np.mean(by_step[step]) for step in steps], **line, label=way, marker=".")
        ends = ([end(by_step[step]) for step in steps] for end in (min, max))
        axes.fill_between(steps, *ends, color=line["color"], alpha=0.12, linewidth=0)
    axes.legend(frameon=False, fontsize=9, labelcolor=colour("ink"))


def sheet(results: dict, panels: list[Panel]) -> Figure:
    """All panels of a figure on one sheet, with a legend of the methods if there are several panels."""
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    width, height = panels[0].size
    drawn = figure(columns * width, rows * height + 0.9)
    heading = f"{results['title']}\n{results['world']}; {results['num_problems']:,} held-out problems"
    drawn.suptitle(heading, x=0.01, ha="left", fontsize=10, color=colour("ink"), parse_math=False)
    grid = drawn.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    keys = dict.fromkeys(key for panel in panels for key in panel.keys)
    if keys and panels[0].title != "Accuracy against length":
        lines = [_legend_line(key, results["methods"][key]["name"]) for key in keys]
        drawn.legend(handles=lines, loc="outside lower center", ncols=2 * columns, frameon=False, fontsize=10)
    for axes, panel in zip(grid, panels, strict=False):
        panel.draw(axes)
    return drawn


def _legend_line(key: str, name: str) -> Line2D:
    look = style(key)
    return Line2D([], [], color=colour(look.colour), linestyle=look.dashes, linewidth=1.8, label=name)
