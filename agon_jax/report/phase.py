"""Tables and the diagram of the job `phase`: prediction beside measurement."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Iterator

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agon_jax.stats import paired_seeds, seed_interval

COOP, GRPO = "coop", "grpo"


def write(results: dict, folder: pathlib.Path) -> None:
    """phase.md and, once a point is there, phase.png; see `agon_jax.phase` for `results`."""
    (folder / "phase.md").write_text(markdown(results), encoding="utf-8")
    if results["points"]:
        new = folder / f".phase.{os.getpid()}.png"
        diagram(results).savefig(new, format="png")
        os.replace(new, folder / "phase.png")


def markdown(results: dict) -> str:
    """All figures, one block a question."""
    blocks = [_bases(results), _lengths(results), _controls(results), _running(results)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(columns: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    rows = [columns, ("---", *["---:"] * (len(columns) - 1)), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _bases(results: dict) -> str:
    lines = []
    for point in results["points"]:
        base = point["base"]
        payoffs = [2 * base["q"]] + [
            2 * base["p"] + bonus * (1 - base["q"]) * base["v"] for bonus in (0, 0.5, 1, 2)
        ]
        rates = [f"{base[name]:.3f}" for name in ("q", "p", "v", "copy_wrong", "copy_right")]
        shown = (f"{payoff:.2f}" for payoff in payoffs)
        lines.append((point["name"], f"{_ratio(point):.2f}", *rates, *shown))
    columns = (
        "base", "p / q", "q", "p", "v", "copies wrong", "copies right", "copy pays", "solve pays, 0", "0.5",
        "1", "2",
    )  # fmt: skip
    return "### The bases, and what the theory says of them\n\n" + _table(columns, lines)


def _ratio(point: dict) -> float:
    """p / q of a base; inf for one whose drafts are never right."""
    return point["base"]["p"] / point["base"]["q"] if point["base"]["q"] else math.inf


def _spread(values: list[float], scale: float = 100, digits: int = 1) -> str:
    mean, low, high = (scale * value for value in seed_interval(values))
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _rates(method: dict, length: str) -> list[float]:
    return [member["validation"][length] for member in method["members"]]


def _copies(member: dict, length: str) -> float:
    """Copy rate in the window of training steps that ends at `length`."""
    return member["path"]["copy_rate"][int(length) // 10 - 1]


def _lengths_of(results: dict) -> list[str]:
    steps = results["steps"]
    return [str(steps // 2), str(steps)]


def _exchanging(point: dict) -> Iterator[tuple[str, dict]]:
    return ((key, m) for key, m in point["methods"].items() if all("path" in x for x in m["members"]))


def _lengths(results: dict) -> str:
    """Pass rates and copy rates of every method with an exchange, at both lengths."""
    lines = []
    for point in results["points"]:
        coop = point["methods"].get(COOP)
        for key, method in _exchanging(point):
            for length in _lengths_of(results):
                against = "–"
                if coop and key != COOP:
                    d = paired_seeds(_rates(coop, length), _rates(method, length))
                    against = f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}], p = {d.p:.2g}"
                copies = " ".join(f"{_copies(member, length):.2f}" for member in method["members"])
                escapes = " ".join(str(member["escape"]) for member in method["members"])
                lines.append(
                    (
                        point["name"], method["name"], length, _spread(_rates(method, length)), against,
                        copies, escapes if length == str(results["steps"]) else "",
                    )
                )  # fmt: skip
    columns = (
        "base", "method", "steps", "pass@1 % of the cascade [95 % over seeds]", "minus coop, points [95 %]",
        "copy rate at the end, by seed", "step of escape, by seed",
    )  # fmt: skip
    return (
        "### Measured: the cascade, and copying\n\nPass rates on the validation split, both directions "
        "averaged. Escape: the step from which fewer than half copy, to the end.\n\n" + _table(columns, lines)
    )


def _controls(results: dict) -> str:
    """Cooperation and competition against one policy, at equal rollouts and at equal tokens."""
    lines = []
    for point in results["points"]:
        if GRPO not in point["methods"]:
            continue
        single = point["methods"][GRPO]["members"]
        for _, method in _exchanging(point):
            for length in _lengths_of(results):
                rollouts = [member["validation"][length] for member in single]
                tokens = [
                    at_equal_tokens(a, b["tokens"][length])
                    for a, b in zip(single, method["members"], strict=True)
                ]
                cascade = _rates(method, length)
                d = [paired_seeds(other, cascade) for other in (rollouts, tokens)]
                cells = [f"{100 * x.mean:+.1f} [{100 * x.low:+.1f}, {100 * x.high:+.1f}]" for x in d]
                lines.append((point["name"], method["name"], length, _spread(rollouts), *cells))
    if not lines:
        return ""
    columns = (
        "base", "method", "steps", "GRPO, one pass, %", "cascade minus GRPO at equal rollouts",
        "cascade minus GRPO at equal generated tokens",
    )  # fmt: skip
    return "### Measured: against a single policy\n\n" + _table(columns, lines)


def at_equal_tokens(member: dict, tokens: int) -> float:
    """Validation pass rate of a run where it had generated as many tokens: linear between evaluations,
    its last one if it never did."""
    steps = sorted(int(step) for step in member["validation"])
    spent = [member["tokens"][str(step)] for step in steps]
    return float(np.interp(tokens, spent, [member["validation"][str(step)] for step in steps]))


def running_boundary(results: dict) -> np.ndarray:
    """[2, 2] windows: [solving pays more, copying pays more] by [the copy rate falls to the next window,
    it rises]. Windows without a change of 0.02 or a margin are left out."""
    counts = np.zeros((2, 2), int)
    for point in results["points"]:
        for key, method in _exchanging(point):
            if key == "coop_floor":
                continue  # other forces act there
            for member in method["members"]:
                copies, margins = member["path"]["copy_rate"], member["margin"]
                for now, later, margin in zip(copies, copies[1:], margins, strict=False):
                    if margin is not None and abs(later - now) >= 0.02:
                        counts[int(margin <= 0), int(later > now)] += 1
    return counts


def _running(results: dict) -> str:
    counts = running_boundary(results)
    right, total = int(np.trace(counts)), int(counts.sum())
    if not total:
        return ""
    rows = (("solving pays more", counts[0]), ("copying pays more", counts[1]))
    lines = [(name, str(falls), str(rises)) for name, (falls, rises) in rows]
    return (
        "### Measured: the running boundary\n\n"
        + _table(("windows of 10 steps", "copy rate falls", "copy rate rises"), lines)
        + f"\n\nIn {right} of {total} windows ({100 * right / total:.0f} %) the copy rate moved to the side "
        f"that the payoffs of the window favoured; always to say `rises` would be right in "
        f"{100 * counts[:, 1].sum() / total:.0f} %."
    )


def diagram(results: dict) -> Figure:
    """Copy rate and gain over coop at both lengths over (p / q of the base, weight of the bonus), with the
    predicted boundary; and the paths of the copy rate."""
    lengths = _lengths_of(results)
    figure = FigureCanvasAgg(Figure(figsize=(11, 7.2), dpi=140, layout="constrained")).figure
    axes = figure.subplots(2, 2)
    for row, length in enumerate(lengths):
        _copy_panel(figure, axes[row][0], results, length)
        _gain_panel(axes[row][1], results, length)
    figure.suptitle("Copy or solve: measured, with the predicted boundary", x=0.01, ha="left", weight="bold")
    return figure


def _copy_panel(figure: Figure, axes, results: dict, length: str) -> None:
    xs, ys, colours = [], [], []
    for point in results["points"]:
        for _, method in _exchanging(point):
            if method["bonus"] is not None:
                xs.append(_ratio(point))
                ys.append(method["bonus"])
                colours.append(np.mean([_copies(member, length) for member in method["members"]]))
    dots = axes.scatter(xs, ys, c=colours, cmap="cividis", vmin=0, vmax=1, s=260, edgecolors="black")
    for x, y, value in zip(xs, ys, colours, strict=True):
        axes.annotate(
            f"{value:.2f}",
            (x, y),
            ha="center",
            va="center",
            fontsize=7,
            color="white" if value < 0.6 else "black",
        )
    q = np.mean([point["base"]["q"] for point in results["points"]])
    bonus = np.linspace(0, 2.2, 50)
    axes.plot(2 / (2 + bonus * (1 - q)), bonus, "--", color="#D55E00", label="predicted boundary (v = p)")
    axes.set(
        xlabel="p / q of the base", ylabel="weight of the bonus", title=f"copy rate after {length} steps"
    )
    axes.legend(frameon=False, fontsize=8)
    figure.colorbar(dots, ax=axes, label="copy rate")


def _gain_panel(axes, results: dict, length: str) -> None:
    palette = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
    series: dict[str, list[tuple[float, float, float, float]]] = {}
    for point in sorted(results["points"], key=_ratio):
        coop = point["methods"].get(COOP)
        for key, method in _exchanging(point):
            if coop and key != COOP:
                d = paired_seeds(_rates(coop, length), _rates(method, length))
                series.setdefault(method["name"], []).append((_ratio(point), d.mean, d.low, d.high))
    for index, (name, values) in enumerate(series.items()):
        x, mean, low, high = (np.array(column) for column in zip(*values, strict=True))
        shift = 0.006 * (index - (len(series) - 1) / 2)
        axes.errorbar(
            x + shift, 100 * mean, 100 * np.stack([mean - low, high - mean]), fmt="o-", capsize=3,
            label=name, color=palette[index % len(palette)],
        )  # fmt: skip
    axes.axhline(0, color="#666666", linewidth=0.8)
    axes.set(
        xlabel="p / q of the base", ylabel="cascade minus coop (points)", title=f"gain after {length} steps"
    )
    if series:
        axes.legend(frameon=False, fontsize=8)
