"""One self-contained web page: the answer first, then everything behind it.

Nothing on the page is fetched, and nothing that a model wrote is ever read as markup: the template
escapes, transcripts travel as JSON without `<`, and the script shows them as text alone. A content
security policy allows that one script, by its hash, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import math
import pathlib
from typing import Any

import jinja2
from markupsafe import Markup

from agon_jax.report import plots, schema, tables
from agon_jax.report.compare import HEADLINES, Comparison, unanswered
from agon_jax.report.formats import interval, points
from agon_jax.report.styles import COLOURS, style

_HERE = pathlib.Path(__file__).parent
_SCALES = tuple(scale / 100 for scale in (2, 4, 6, 10, 14, 20, 30, 40, 60, 80, 100))
_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.filters["points"] = points


def render(results: dict, found: list[Comparison], transcripts: dict[str, list[dict]] | None = None) -> str:
    """The page as HTML.

    Args:
      results: as checked by `schema.check`.
      found: the comparisons of these results.
      transcripts: method -> records of `agon_jax.logs`, as many as the page shall carry.
    """
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _ENVIRONMENT.get_template("page.html").render(
        results=results,
        facts=_facts(results),
        missing=schema.missing(results),
        answers=_answers(results, found),
        forest=_forest(found),
        headlines=HEADLINES,
        tables={table.__name__.removesuffix("_table"): table(results) for table in _TABLES},
        comparisons=tables.comparisons_table(found),
        accuracy=_figures("accuracy", plots.accuracy_length(results)),
        training=_figures("training", plots.training(results)),
        diagnostics=_figures("diagnostics", plots.diagnostics(results)),
        evaluations=_figures("evaluations", plots.evaluations(results)),
        legend=_legend(results),
        colours=COLOURS,
        transcripts=_transcripts(results, transcripts or {}),
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=digest,
    )


_TABLES = (
    tables.methods_table, tables.ways_table, tables.samples_table, tables.pairs_table, tables.budget_table,
)  # fmt: skip


def _facts(results: dict) -> list[tuple[str, str]]:
    facts = [
        ("held-out problems", f"{results['num_problems']:,}"),
        ("training steps", f"{results['steps']:,}"),
        ("seeds", ", ".join(map(str, results["seeds"]))),
    ]
    return [*facts, ("configuration", results["config_hash"])] if results.get("config_hash") else facts


def _answers(results: dict, found: list[Comparison]) -> list[dict[str, Any]]:
    """The questions of the page, each with its comparison or the reason why there is none."""
    by_pair = {each.pair: each for each in found}
    return [
        {"question": pair.question, "found": by_pair.get(pair), "reason": unanswered(results, pair)}
        for pair in HEADLINES
    ]


def _forest(found: list[Comparison]) -> dict[str, Any]:
    """Where the intervals lie on one axis, in percent of its width.

    The axis is made for comparisons of trained methods, since all that training brings would leave the
    rest no room, and is cut where only an interval much wider than every effect would reach. What lies
    beyond it is marked.
    """
    trained = [each for each in found if each.pair.second not in schema.UNTRAINED] or found
    widest = max([0.05, *(3 * abs(each.effect) for each in trained)])
    needed = max([0.0, *(min(max(abs(each.low), abs(each.high)), widest) for each in trained)])
    limit = next(scale for scale in _SCALES if scale >= min(needed, 1))
    place = lambda value: 50 + 50 * min(max(value / limit, -1), 1)
    rows = []
    for each in found:
        wide = each.wide or (each.low, each.high)
        rows.append({
            "found": each, "effect": place(each.effect), "low": place(each.low), "high": place(each.high),
            "wide_low": place(wide[0]), "wide_high": place(wide[1]),
            "interval": interval(each.low, each.high, points),
            "cut_low": each.low < -limit, "cut_high": each.high > limit, "off": abs(each.effect) > limit,
        })  # fmt: skip
    ticks = [(50 + 50 * share, f"{100 * share * limit:+g}".replace("-", "−")) for share in (-1, -0.5, 0.5, 1)]
    return {"rows": rows, "ticks": [*ticks, (50, "0")]}


def _figures(name: str, panels: list[plots.Panel]) -> list[dict[str, Any]]:
    return [
        {"title": panel.title, "alt": panel.alt, "svg": Markup(panel.svg(f"{name}{index}"))}
        for index, panel in enumerate(panels)
    ]


def _legend(results: dict) -> list[dict[str, str]]:
    """The methods that have curves, as lines in their colours and dashes."""
    borders = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashed"}
    return [
        {"name": method["name"], "colour": style(key).colour, "border": borders[style(key).dashes]}
        for key, method in schema.methods(results).items()
        if not method.get("trained_as") and any(member.get("curve") for member in method["members"])
    ]


def _transcripts(results: dict, transcripts: dict[str, list[dict]]) -> list[dict[str, Any]]:
    """What the script reads, figures that JSON cannot hold left out."""
    return [
        {
            "key": key,
            "name": results["methods"].get(key, {}).get("name", key),
            "shown": results["methods"].get(key, {}).get("exchange", True),
            "records": [_plain(record) for record in records],
        }
        for key, records in transcripts.items()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
