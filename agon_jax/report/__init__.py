"""Turns the results of an experiment into tables, figures and a web page that claim only what they show.

One JSON-serialisable dict goes in. Fields marked ? may be missing or None:

  title, world       str; `world` names task, source of the problems, and base
  num_problems       int, held-out problems
  steps, seeds       int, [int]: what was planned
  config_hash?       str
  methods            {key: method}, keys as in `schema.ORDER` or others
    name             str, "Agon"
    passes, policies 1 or 2
    exchange?        bool: whether challengers see the draft's summary; True where it is missing
    seeds?           [int]: planned for this method, where that is not all of them
    trained_as?      key of the method whose checkpoint it uses (grpo_cascade: "grpo")
    members          list, one for every seed that is finished:
      seed           int; of training, or of sampling where nothing is trained
      rows           list, one for every way to answer:
        name         "A then B", "one pass", "A alone", …
        headline     bool, True on exactly one: the member's result, picked on the validation split
        validation?  float, its pass rate there
        outcomes     str of 0 and 1, one per held-out problem, in one order everywhere
        mean_length  float, tokens of the final stage
        stages       [{role, policy, generated_tokens, prefilled_tokens, truncated, well_formed, correct}]
        flips?       {kept, lost, gained, failed}, problems
        samples?     {n, problems, pass_at: {"1": …}, majority_at: {"1": …}}
      pair?          {disagreement, error_overlap, both_wrong, phi} of the two policies alone
      training?      {steps, rollouts, generated_tokens, prefilled_tokens}
      curve?         [{step, and any of reward, draft_pass_rate, … (see `plots`)}]
      evaluations?   [{step, rates: {name of a row: pass@1}}]

Other fields reach results.json and nothing else. A missing field raises a ValueError that names it.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable

from agon_jax.report import page, plots, schema, tables
from agon_jax.report.compare import HEADLINES, Comparison, comparisons, unanswered
from agon_jax.report.tables import console_table

__all__ = ["Comparison", "comparisons", "conclusions", "console_table", "write"]

_FIGURES = {
    "accuracy_length.png": (plots.accuracy_length, "Accuracy against length"),
    "training.png": (plots.training, "Pass rates over training"),
    "diagnostics.png": (plots.diagnostics, "Diagnostics over training"),
    "evaluations.png": (plots.evaluations, "Evaluations during training"),
}


def write(
    results: dict, folder: str | os.PathLike, transcripts: dict[str, list[dict]] | None = None
) -> list[pathlib.Path]:
    """Writes results.json, table.md, the figures there are data for, and index.html.

    Every file appears whole or not at all. results.json comes first, before anything is checked: a
    malformed field must not cost a long run its data. A figure of an older run does not survive.

    Args:
      results: see above.
      folder: is made if it is not there.
      transcripts: method -> records of `agon_jax.logs.RunLog.transcripts`; all of them go into the page.

    Returns:
      The paths written, in that order.

    Raises:
      ValueError: a field is missing or malformed.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[pathlib.Path] = []

    def put(name: str, write_to: Callable[[pathlib.Path], object]) -> None:
        _replace(folder / name, write_to)
        written.append(folder / name)

    put("results.json", _text(json.dumps(results, indent=2) + "\n"))
    schema.check(results)
    found = comparisons(results)
    panels = {name: draw(results) for name, (draw, _) in _FIGURES.items()}
    put("table.md", _text(_markdown(results, found, [name for name in panels if panels[name]])))
    for name, drawn in panels.items():
        if drawn:
            put(name, lambda new, drawn=drawn: plots.sheet(results, drawn).savefig(new, format="png"))
        else:
            (folder / name).unlink(missing_ok=True)
    put("index.html", _text(page.render(results, found, transcripts)))
    return written


def conclusions(results: dict) -> list[str]:
    """One line for every comparison: its question, and what the data allow to say.

    Raises:
      ValueError: a field is missing or malformed.
    """
    schema.check(results)
    return _sentences(results, comparisons(results))


def _sentences(results: dict, found: list[Comparison]) -> list[str]:
    pairs = {each.pair for each in found}
    open_ = [f"{pair.question} {unanswered(results, pair)}" for pair in HEADLINES if pair not in pairs]
    return [*(f"{each.pair.question} {each.verdict}" for each in found), *open_, *schema.missing(results)]


def _markdown(results: dict, found: list[Comparison], figures: list[str]) -> str:
    shown = [tables.methods_table(results), tables.comparisons_table(found), tables.ways_table(results)]
    shown += [tables.samples_table(results), tables.pairs_table(results), tables.budget_table(results)]
    blocks = [
        f"# {results['title']}",
        f"{results['world']}. {results['num_problems']:,} held-out problems, {results['steps']:,} steps. "
        "All figures were measured in these runs; none is the paper's.",
        "\n".join(f"- {line}" for line in _sentences(results, found)),
        *(tables.markdown(table) for table in shown if table.rows),
        *(f"![{_FIGURES[name][1]}]({name})" for name in figures),
    ]
    return "\n\n".join(blocks) + "\n"


def _text(text: str) -> Callable[[pathlib.Path], object]:
    return lambda new: new.write_text(text, encoding="utf-8")


def _replace(path: pathlib.Path, write_to: Callable[[pathlib.Path], object]) -> None:
    """The new file takes the place of `path` in one step, once it is written in full."""
    new = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_to(new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
