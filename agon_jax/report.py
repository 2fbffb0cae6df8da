"""Turns the results of a comparison into a table, two figures and the sentences the data allow.

Every function takes one JSON-serialisable dict. Fields marked ? may be missing:

  title, world       str; `world` names what the models were trained and tested on
  num_problems, seed int; problems are held-out ones
  seconds?           float, wall time of the whole comparison
  rows               list, one dict per evaluated policy or cascade:
    name             str, "GRPO, two-pass", "Agon, A then B", …
    method           str, "zero_shot" or the key of its training run: "grpo", "adv", …
    outcomes         str of 0 and 1, one per held-out problem, in the same order in every row
    mean_length      float, completion tokens of the final stage
    generated_tokens, prefilled_tokens   int, evaluation, summed over stages and problems
    chosen?          bool, True only on the cascade direction picked on the validation split
  training?          {method: {rollouts, generated_tokens, prefilled_tokens, …}}, ints
  curves?            {method: [{step, draft_pass_rate?, challenge_pass_rate?, …}, …]}, rates in 0..1

Other fields reach results.json and nothing else. A missing field raises a ValueError that names it.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text as Text2D
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import Bbox
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text
from scipy.ndimage import uniform_filter1d

from agon_jax.stats import clopper_pearson, mcnemar_exact, paired_bootstrap

ZERO_SHOT, AGON, GRPO_TWO_PASS = "zero_shot", "adv", "GRPO, two-pass"  # two methods and a row's name
METHOD_NAMES = {
    "grpo": "GRPO", "self_refine": "Self-refine", "coop": "Coop", AGON: "Agon", "margin": "Margin",
    "tie_break": "Agon, tie-break", "fixed_roles": "Agon, fixed roles",
}  # fmt: skip
COLUMNS = (
    *("method (chosen: on validation)", "pass@1 % [95 % interval]", "mean length"),
    *("tokens per problem, generated + prefilled", "training rollouts"),
    "training tokens, generated + prefilled",
)
CONSOLE_COLUMNS = ("method", "pass@1 % [95 %]", "length", "tokens/problem", "rollouts")  # 80 characters
LIMITS = (
    "What the table does not show: one seed at this scale cannot tell competition from cooperation (the "
    "spread between seeds is about 2 points), so no gain of competition over cooperation is claimed."
)
_GREY = "#666666"  # zero-shot; the rest is the Okabe-Ito palette, safe for the colour-blind
_PALETTE = ("#0072B2", "#CC79A7", "#009E73", "#D55E00", "#E69F00", "#56B4E9", "#000000")
_COLOURS = dict(zip(METHOD_NAMES, _PALETTE, strict=True))


def console_table(results: dict) -> Table:
    """The comparison for a terminal, one line per row of the results, all columns but the last."""
    _check(results)
    justify = lambda index: "right" if index else "left"
    columns = [Column(name, justify=justify(i), no_wrap=True) for i, name in enumerate(CONSOLE_COLUMNS)]
    titles = dict(title=Text(results["title"]), caption=Text(results["world"]))
    table = Table(*columns, **titles, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for cells in _cells(results):
        table.add_row(*map(Text, cells[: len(columns)]))  # Text: a name in brackets is no markup
    return table


def markdown_table(results: dict) -> str:
    """The comparison as a Markdown table with the columns of `console_table`."""
    _check(results)
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *_cells(results)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def conclusions(results: dict) -> list[str]:
    """One-line statements that the data support, and one on what they cannot show."""
    _check(results)
    return [*_against_zero_shot(results), *_agon_against_grpo(results), *_budgets(results), LIMITS]


def plot_accuracy_length(results: dict, path: str | os.PathLike) -> Figure:
    """Writes a PNG: accuracy with its 95 % interval against the mean length of the final stage."""
    _check(results)
    rows, headline = results["rows"], _headline_rows(results)
    hollow = "; hollow: other ways to run the same method" if len(headline) < len(rows) else ""
    axes = _axes(results, f"{results['num_problems']} held-out problems{hollow}")
    axes.set(xlabel="mean length of the final stage (tokens)", ylabel="pass@1 (%), 95 % interval")
    axes.margins(x=0.2, y=0.15)
    for row in rows:
        percent, low, high = _percent(row)
        axes.errorbar(
            row["mean_length"], percent, [[percent - low], [high - percent]], fmt="o", markersize=8,
            markerfacecolor=None if row in headline else "white", color=_COLOURS.get(row["method"], _GREY),
            capsize=3,
        )  # fmt: skip
    _name_points(axes, rows, headline)
    _replace(path, lambda new: axes.figure.savefig(new, format="png"))
    return axes.figure


def plot_training(results: dict, path: str | os.PathLike) -> Figure:
    """Writes a PNG: pass rates over training steps, each step faint and a moving mean on top."""
    _check(results)
    curves = results.get("curves", {})
    window = max([0, *(len(curve) // 10 for curve in curves.values())]) | 1  # odd, so that it has a centre
    axes = _axes(results, f"faint: every step, strong: mean over {window} steps")
    axes.set(xlabel="training step", ylabel="pass rate of the training rollouts (%)")
    for method, curve in curves.items():
        for stage, dashes in (("draft", "-"), ("challenge", "--")):
            rate = f"{stage}_pass_rate"
            points = [(point["step"], point[rate]) for point in curve if np.isfinite(point.get(rate, np.nan))]
            if points:
                steps, rates = np.transpose(points)
                line = {"linestyle": dashes, "color": _COLOURS.get(method, _GREY)}
                axes.plot(steps, 100 * rates, **line, linewidth=1, alpha=0.2)
                line["label"] = f"{METHOD_NAMES.get(method, method)}, {stage}"
                axes.plot(steps, 100 * uniform_filter1d(rates, window), **line, linewidth=2)
    if axes.lines:
        axes.figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    _replace(path, lambda new: axes.figure.savefig(new, format="png"))
    return axes.figure


def write(results: dict, folder: str | os.PathLike) -> list[pathlib.Path]:
    """Writes results.json, table.md, accuracy_length.png and, given curves, training.png.

    Every file appears whole or not at all. results.json comes first, before anything is checked:
    a malformed field must not cost a long run its data. Returns the paths written, in that order.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("results.json", "table.md", "accuracy_length.png", "training.png")]
    _replace(paths[0], lambda new: new.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8"))
    _replace(paths[1], lambda new: new.write_text(_page(results), encoding="utf-8"))
    plot_accuracy_length(results, paths[2])
    if results.get("curves"):
        plot_training(results, paths[3])
    else:
        paths.pop().unlink(missing_ok=True)  # the curves of an older run would pass for this one's
    return paths


def _page(results: dict) -> str:
    _check(results)
    took = f", {results['seconds']:,.0f} s in all" if "seconds" in results else ""
    blocks = [
        f"# {results['title']}",
        f"World: {results['world']}. These figures are ours, on this tiny world; none is the paper's.",
        f"{results['num_problems']} held-out problems, seed {results['seed']}{took}.",
        markdown_table(results),
        "\n".join(f"- {line}" for line in conclusions(results)),
        "![accuracy against length](accuracy_length.png)",
        *(["![pass rates over training](training.png)"] if results.get("curves") else []),
    ]
    return "\n\n".join(blocks) + "\n"


def _check(results: dict) -> None:
    _require(results, "results", "title", "world", "num_problems", "seed", "rows")
    tokens, total = ("generated_tokens", "prefilled_tokens"), results["num_problems"]
    for index, row in enumerate(results["rows"]):
        _require(row, f"rows[{index}]", "name", "method", "outcomes", "mean_length", *tokens)
        if total < 1 or len(row["outcomes"]) != total or not set(row["outcomes"]) <= {"0", "1"}:
            raise ValueError(f"rows[{index}]: 'outcomes' must be 'num_problems' = {total} zeros and ones")
    for method, run in results.get("training", {}).items():
        _require(run, f"training[{method!r}]", "rollouts", *tokens)
    for method, curve in results.get("curves", {}).items():
        for point in curve:
            _require(point, f"curves[{method!r}]", "step")


def _require(mapping: dict, where: str, *fields: str) -> None:
    for field in fields:
        if field not in mapping:
            raise ValueError(f"{where}: missing field {field!r}")


def _cells(results: dict) -> Iterator[tuple[str, ...]]:
    for row in results["rows"]:
        run = results.get("training", {}).get(row["method"])
        yield (
            row["name"] + (" (chosen)" if row.get("chosen") else ""),
            f"{_percent(row)[0]:.1f} {_interval(row)}",
            _short(row["mean_length"]),
            _tokens(row, results["num_problems"]),
            f"{run['rollouts']:,}" if run else "–",
            _tokens(run) if run else "–",
        )


def _tokens(counts: dict, per: int = 1) -> str:
    return " + ".join(_short(counts[f"{kind}_tokens"] / per) for kind in ("generated", "prefilled"))


def _short(count: float) -> str:
    return EngFormatter(places=1, sep="")(count) if count >= 1000 else f"{count:.1f}"


def _percent(row: dict) -> tuple[float, float, float]:
    """(pass@1, low, high) in percent."""
    correct, total = row["outcomes"].count("1"), len(row["outcomes"])
    return 100 * correct / total, *(100 * end for end in clopper_pearson(correct, total))


def _interval(row: dict) -> str:
    return "[{1:.1f}, {2:.1f}]".format(*_percent(row))


def _headline_rows(results: dict) -> list[dict]:
    """The rows, less those of a method of which the validation split chose another."""
    decided = {row["method"] for row in results["rows"] if row.get("chosen")}
    return [row for row in results["rows"] if row.get("chosen") or row["method"] not in decided]


def _against_zero_shot(results: dict) -> Iterator[str]:
    for zero in (row for row in results["rows"] if row["method"] == ZERO_SHOT):
        for row in (row for row in _headline_rows(results) if row is not zero):
            relation = "overlaps zero-shot's {}: the intervals alone show no gain"
            if _percent(row)[1] > _percent(zero)[2]:
                relation = "lies above zero-shot's {}"
            elif _percent(row)[2] < _percent(zero)[1]:
                relation = "lies below zero-shot's {}"
            yield f"{row['name']}: the 95 % interval {_interval(row)} {relation.format(_interval(zero))}."


def _agon_against_grpo(results: dict) -> Iterator[str]:
    grpo = [row for row in results["rows"] if row["name"] == GRPO_TWO_PASS]
    agon = [row for row in _headline_rows(results) if row["method"] == AGON]
    if len(grpo) != 1 or len(agon) != 1 or results["num_problems"] < 2:
        return  # no direction chosen: to take the better one here would be to select on the test set
    first, second = (np.array(list(row["outcomes"])) == "1" for row in (*grpo, *agon))
    difference, low, high = (100 * value for value in paired_bootstrap(first, second))
    p = mcnemar_exact(first, second)
    yield (
        f"{agon[0]['name']} minus {GRPO_TWO_PASS}, paired on the same {len(first)} problems: "
        f"{difference:+.1f} points [{low:+.1f}, {high:+.1f}] (95 % bootstrap interval), "
        f"exact McNemar p = {p:.3g}{'' if p < 0.05 else ': no difference shown at the 5 % level'}."
    )


def _budgets(results: dict) -> Iterator[str]:
    runs = {METHOD_NAMES.get(method, method): run for method, run in results.get("training", {}).items()}
    if len(runs) < 2:
        return
    matched = len({run["rollouts"] for run in runs.values()}) == 1
    verdict = "are matched" if matched else "are NOT matched, so a difference may come from the budget"
    each = "; ".join(f"{name} {run['rollouts']:,} with {_tokens(run)} tokens" for name, run in runs.items())
    yield f"Training rollouts {verdict}: {each} (generated + prefilled)."


def _axes(results: dict, note: str) -> Axes:
    axes = FigureCanvasAgg(Figure(figsize=(8, 5), dpi=150, layout="constrained")).figure.add_subplot()
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_title(results["title"], loc="left", fontsize=13, fontweight="bold", pad=34, parse_math=False)
    note = f"{results['world']}\n{note}"
    axes.text(0, 1.02, note, transform=axes.transAxes, fontsize=9.5, color=_GREY, parse_math=False)
    return axes


def _name_points(axes: Axes, rows: list[dict], headline: list[dict]) -> None:
    """Writes each row's name near its point, clear of all bars and other names, with a thin leader."""
    axes.figure.draw_without_rendering()  # settles the layout: pixel positions are final from here
    frame, scale = axes.get_window_extent(), axes.figure.dpi / 72  # pixels per point
    ends = [axes.transData.transform([(row["mean_length"], end) for end in _percent(row)]) for row in rows]
    taken = [Bbox(bar).padded(6 * scale) for _, *bar in ends]
    for row, (point, *_) in sorted(zip(rows, ends, strict=True), key=lambda pair: pair[0] not in headline):
        name = axes.annotate(
            row["name"], (row["mean_length"], _percent(row)[0]), (0, 0), textcoords="offset points",
            ha="center", va="center", fontsize=10 if row in headline else 8, zorder=1 - 0.001 * len(taken),
            color=_COLOURS.get(row["method"], _GREY), bbox={"fc": "white", "ec": "none", "pad": 0.5},
            arrowprops={"arrowstyle": "-", "color": _GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 9},
        )  # fmt: skip
        half = Text2D.get_window_extent(name).size / 2

        def cost(offset: np.ndarray, point: np.ndarray = point, half: np.ndarray = half) -> float:
            box = Bbox([point + offset - half, point + offset + half])
            hidden = box.count_overlaps(taken) + (frame.count_contains(box.get_points()) < 2)
            crossed = sum(map(Path([point, point + offset]).intersects_bbox, taken))
            distance = np.hypot(*np.maximum(np.abs(offset) - half, 0)) + 0.1 * np.abs(offset[1])
            return 1e4 * hidden + 100 * crossed + distance

        sides = [sign * (half[0] + gap * scale) for gap in (9, 30, 60) for sign in (1, -1)]
        best = min((np.array([dx, dy * scale]) for dx in [*sides, 0] for dy in range(-160, 161, 4)), key=cost)
        name.set(position=best / scale, in_layout=False)
        taken.append(Bbox([point + best - half, point + best + half]))


def _replace(path: str | os.PathLike, write_to: Callable[[pathlib.Path], object]) -> None:
    """The new file takes the place of `path` in one step, once it is written in full."""
    new = pathlib.Path(path).with_name(f".{pathlib.Path(path).name}.{os.getpid()}.tmp")
    try:
        write_to(new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
