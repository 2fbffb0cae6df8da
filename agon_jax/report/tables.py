"""The tables of a report as plain cells, and the forms in which they are shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from agon_jax.report import schema
from agon_jax.report.compare import Comparison
from agon_jax.report.formats import bare_p, count, interval, percent, points
from agon_jax.stats import clopper_pearson, seed_interval

NONE = "–"
ARROW = "→"


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells of text; the first `names` columns are words, the others figures."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    names: int = 1


def accuracy(rows: list[dict]) -> tuple[float, float, float, str]:
    """(mean, low, high, what the interval is over) of pass@1 as fractions.

    Over seeds (Student's t) if there are several, else over problems (Clopper-Pearson).
    """
    solved = schema.outcomes(rows)
    if len(rows) > 1:
        mean, low, high = seed_interval(solved.mean(axis=1))
        return mean, max(low, 0.0), min(high, 1.0), "seeds"
    return float(solved.mean()), *clopper_pearson(int(solved.sum()), solved.size), "problems"


def methods_table(results: dict) -> Table:
    """One line a method: what counts as its result."""
    lines = []
    for key, method in schema.methods(results).items():
        rows = [schema.headline(member) for member in method["members"]]
        lines.append((method["name"], *_result(results, rows), _rollouts(results, key), *_form(rows)))
    return Table(
        "What counts as the result of each method",
        "pass@1 in % with its 95 % interval: over seeds Student's t, over problems (one seed) Clopper-"
        "Pearson. SD: between seeds, in points. Length, cut off and well formed are those of the final "
        "stage, tokens those of all stages, generated + prefilled. Where there are several ways to "
        "answer, the validation split chose one.",
        (
            *("method", "pass@1 %", "95 %", "over", "SD", "seeds", "length", "tokens a problem"),
            *("training rollouts", "cut off %", "well formed %"),
        ),
        lines,
    )


def _result(results: dict, rows: list[dict]) -> tuple[str, ...]:
    mean, low, high, over = accuracy(rows)
    return (
        percent(mean), interval(low, high), over, _spread(rows), str(len(rows)),
        count(_mean(row["mean_length"] for row in rows)), _tokens(results, rows),
    )  # fmt: skip


def _spread(rows: list[dict]) -> str:
    return f"{100 * schema.outcomes(rows).mean(axis=1).std(ddof=1):.1f}" if len(rows) > 1 else NONE


def _tokens(results: dict, rows: list[dict]) -> str:
    spent = np.mean([schema.tokens(row, results["num_problems"]) for row in rows], axis=0)
    return " + ".join(map(count, spent))


def _rollouts(results: dict, key: str) -> str:
    if key in schema.UNTRAINED:
        return "0"
    costs = schema.trainings(results, key)
    return f"{_mean(cost['rollouts'] for cost in costs.values()):,.0f}" if costs else "unknown"


def _form(rows: list[dict]) -> tuple[str, str]:
    return tuple(
        percent(_mean(row["stages"][-1][field] for row in rows)) for field in ("truncated", "well_formed")
    )


def ways_table(results: dict) -> Table:
    """One line for every way in which a method was asked to answer."""
    lines = []
    for method in schema.methods(results).values():
        ways = schema.ways(method)
        for name, rows in ways.items():
            mean, low, high, _ = accuracy(rows)
            chosen = sum(bool(row["headline"]) for row in rows) if len(ways) > 1 else 0
            lines.append((
                method["name"], name, f"✓ {chosen} of {len(rows)}" if chosen else NONE,
                _each(row.get("validation") for row in rows), f"{percent(mean)} {interval(low, high)}",
                _stages(results, rows), *_flips(results, rows),
                count(_mean(row["mean_length"] for row in rows)), _tokens(results, rows),
            ))  # fmt: skip
    return Table(
        "All ways to answer",
        "chosen: in how many of the seeds this way is the method's result, picked on validation. By "
        "stage: pass@1 after each stage. Gained: draft wrong, final answer right; lost: draft right, "
        "final answer wrong; both in % of all problems. Means over seeds.",
        (
            *("method", "way", "chosen", "validation %", "pass@1 % [95 %]", "by stage %"),
            *(
                f"gained wrong{ARROW}right %",
                f"lost right{ARROW}wrong %",
                "net",
                "length",
                "tokens a problem",
            ),
        ),
        lines,
        names=2,
    )


def _stages(results: dict, rows: list[dict]) -> str:
    per_stage = zip(*(row["stages"] for row in rows), strict=True)
    solved = (_mean(stage["correct"] for stage in stages) / results["num_problems"] for stages in per_stage)
    return f" {ARROW} ".join(map(percent, solved)) if len(rows[0]["stages"]) > 1 else NONE


def _flips(results: dict, rows: list[dict]) -> tuple[str, str, str]:
    flips = [row["flips"] for row in rows if row.get("flips") is not None]
    if not flips:
        return NONE, NONE, NONE
    gained, lost = (
        _mean(flip[name] for flip in flips) / results["num_problems"] for name in ("gained", "lost")
    )
    return percent(gained), percent(lost), points(gained - lost)


def samples_table(results: dict) -> Table:
    """pass@k and majority@k of the rows that were sampled several times."""
    sampled = [
        (method["name"], name, found)
        for method in schema.methods(results).values()
        for name, rows in schema.ways(method).items()
        if (found := [row["samples"] for row in rows if row.get("samples") is not None])
    ]
    fields = {"pass_at": "pass", "majority_at": "majority"}
    ks = lambda field: sorted({int(k) for *_, found in sampled for samples in found for k in samples[field]})
    columns = [(field, k) for field in fields for k in ks(field)]
    lines = [
        (
            *(method, way, f"{found[0]['n']} x {found[0]['problems']:,}"),
            *(_each(samples[field].get(str(k)) for samples in found) for field, k in columns),
        )
        for method, way, found in sampled
    ]
    return Table(
        "Several samples a problem",
        "pass@k: one of k samples is right. majority@k: the most frequent answer of k is right. In %, "
        "means over seeds; samples: number a problem x number of problems.",
        ("method", "way", "samples", *(f"{fields[field]}@{k}" for field, k in columns)),
        lines,
        names=2,
    )


def pairs_table(results: dict) -> Table:
    """How differently the two policies of a method fail."""
    fields = ("disagreement", "error_overlap", "both_wrong", "phi")
    lines = []
    for method in schema.methods(results).values():
        pairs = [member["pair"] for member in method["members"] if member.get("pair") is not None]
        if pairs:
            shares = [_each(pair[field] for pair in pairs) for field in fields[:-1]]
            phi = _each((pair["phi"] for pair in pairs), "{:.2f}".format)
            lines.append((method["name"], str(len(pairs)), *shares, phi))
    return Table(
        "How the two policies complement each other",
        "Each alone on the same problems. Disagreement: exactly one is right. Error overlap: both wrong,"
        " of those that either has wrong. Both wrong: of all problems. phi: correlation of the outcomes;"
        " lower is more complementary. Means over seeds.",
        ("method", "seeds", "disagreement %", "error overlap %", "both wrong %", "phi"),
        lines,
    )


def budget_table(results: dict) -> Table:
    """What training cost, a seed."""
    lines = []
    for key, method in schema.methods(results).items():
        costs = list(schema.trainings(results, key).values())
        if costs and not method.get("trained_as"):
            mean = {field: _mean(cost[field] for cost in costs) for field in costs[0]}
            lines.append((
                method["name"], str(len(costs)), f"{mean['steps']:,.0f}", f"{mean['rollouts']:,.0f}",
                count(mean["generated_tokens"]), count(mean["prefilled_tokens"]),
            ))  # fmt: skip
    return Table(
        "Training budget",
        "Mean a seed. Methods that use the checkpoint of another are not listed again.",
        ("method", "seeds", "steps", "rollouts", "generated tokens", "prefilled tokens"),
        lines,
    )


def comparisons_table(found: list[Comparison]) -> Table:
    """The figures behind every verdict."""
    lines = [
        (
            f"{each.names[0]} − {each.names[1]}", each.badge, str(len(each.seeds)), points(each.effect),
            interval(each.low, each.high, points), bare_p(each.p), bare_p(each.holm),
            interval(*each.wide, points) if each.wide else NONE, bare_p(each.p_problems),
            *(f"{seeds:,}" if seeds else NONE for seeds in (each.seeds_for_effect, each.seeds_for_small)),
            "alike" if each.same_inference else "not alike", each.budget.status,
        )
        for each in found
    ]  # fmt: skip
    return Table(
        "Comparisons in figures",
        "Points. With several seeds the interval and p are over seeds (paired t), the wide interval over"
        " seeds and problems (hierarchical bootstrap), p over problems a test that flips signs by "
        "problem; with one seed they are a paired bootstrap and the exact McNemar test over problems. "
        "Holm: p corrected for the number of comparisons, the headlines and the others apart; the other "
        "p are not corrected. Seeds needed: for 80 % power of the paired t-test, at the observed effect "
        "and at 2 points.",
        (
            *("first − second", "verdict", "seeds", "effect", "95 %", "p", "p (Holm)", "95 % wide"),
            *("p over problems", "seeds needed", "seeds for 2 points", "inference", "training"),
        ),
        lines,
        names=2,
    )


def markdown(table: Table) -> str:
    """A Markdown table with its note."""
    rule = ["---"] * table.names + ["---:"] * (len(table.columns) - table.names)
    lines = [table.columns, rule, *table.rows]
    cells = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
    return f"## {table.title}\n\n{cells}\n\n{table.note}"


def _cell(text: str) -> str:
    flat = " ".join(text.split())
    for mark, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        flat = flat.replace(mark, escaped)
    return flat


def console_table(results: dict) -> RichTable:
    """The methods for a terminal of 80 columns.

    Raises:
      ValueError: a field is missing or malformed.
    """
    schema.check(results)
    full = methods_table(results)
    titles = dict(title=Text(results["title"]), caption=Text(results["world"]))
    names = ("method", "pass@1 % [95 %]", "over", "seeds", "length", "tokens/problem")
    columns = [
        Column(name, justify="right" if i else "left", overflow="fold") for i, name in enumerate(names)
    ]
    table = RichTable(*columns, **titles, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in full.rows:
        method, mean, ends, over, _, seeds, length, spent, *_ = row
        cells = (method, f"{mean} {ends}", over, seeds, length, spent)
        table.add_row(*map(Text, cells))  # Text: a name in brackets is no markup
    return table


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _each(values: Iterable[float | None], form: Callable[[float], str] = percent) -> str:
    """The mean of those that are there and finite."""
    there = [value for value in values if value is not None and math.isfinite(value)]
    return form(_mean(there)) if there else NONE
