"""Tables, conclusions and figures from made-up results whose numbers are derived by hand."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Annotation, Text
from rich.console import Console

from agon_jax import report

PROBLEMS = 20


def row(name: str, method: str, outcomes: str, length: float, **fields: object) -> dict:
    tokens = {"generated_tokens": 700, "prefilled_tokens": 330}
    return {"name": name, "method": method, "outcomes": outcomes, "mean_length": length} | tokens | fields


def curve(rng: np.random.Generator, top: float, stages: tuple[str, ...]) -> list[dict]:
    rates = lambda step: top * (1 - np.exp(-(step + 5) / 20)) + rng.normal(0, 0.04)
    return [
        {"step": step, "reward": 1.0} | {f"{stage}_pass_rate": float(rates(step)) for stage in stages}
        for step in range(60)
    ]


@pytest.fixture
def results() -> dict:
    """Twenty problems; Agon's chosen direction gains 8 of them over GRPO two-pass and loses 1."""
    rng = np.random.default_rng(0)
    grpo = {"rollouts": 19200, "generated_tokens": 612_345, "prefilled_tokens": 45_678, "steps": 60}
    return {
        "title": "Agon against GRPO",
        "world": "operators: the bundled tiny world",
        "num_problems": PROBLEMS,
        "seed": 3,
        "seconds": 1234.4,
        "rows": [
            row("zero-shot", "zero_shot", "0" * 20, 34.25),
            row("GRPO, one pass", "grpo", "1" * 7 + "0" * 13, 31.0),
            row("GRPO, two-pass", "grpo", "1" * 6 + "0" * 14, 30.6),
            row("Agon, A then B", "adv", "0" + "1" * 13 + "0" * 6, 6100.0, chosen=True),
            row("Agon, B then A", "adv", "1" * 20, 29.4, chosen=False),
        ],
        "training": {"grpo": grpo, "adv": grpo | {"prefilled_tokens": 1_250_000}},
        "curves": {"grpo": curve(rng, 0.6, ("draft",)), "adv": curve(rng, 0.65, ("draft", "challenge"))},
    }


def test_markdown_table_holds_the_hand_derived_numbers(results: dict) -> None:
    header, rule, *lines = report.markdown_table(results).splitlines()
    assert header == "| " + " | ".join(report.COLUMNS) + " |"
    assert rule.count("|") == header.count("|")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    # 0 of 20: the upper end is 1 - 0.025^(1/20) = 16.84 %. 700 / 20 = 35 and 330 / 20 = 16.5 tokens.
    assert cells[0] == ["zero-shot", "0.0 [0.0, 16.8]", "34.2", "35.0 + 16.5", "–", "–"]
    # 13 of 20 is 65 %; [40.8, 84.6] is the exact interval printed in statistical tables.
    assert cells[3] == [
        *("Agon, A then B (chosen)", "65.0 [40.8, 84.6]", "6.1k", "35.0 + 16.5", "19,200", "612.3k + 1.2M")
    ]
    # 20 of 20 mirrors 0 of 20.
    assert cells[4][:2] == ["Agon, B then A", "100.0 [83.2, 100.0]"]


def test_console_table_shows_the_same_cells(results: dict) -> None:
    results["rows"][0]["name"] = "zero-shot [bold]"  # not to be taken for markup
    console = Console(width=80)  # nothing is cut in an ordinary terminal
    with console.capture() as captured:
        console.print(report.console_table(results))
    text = captured.get()
    for line in report.markdown_table(results).splitlines()[2:]:
        *cells, _training_tokens = line.strip("|").split("|")
        assert all(cell.strip() in text for cell in cells)
    assert results["title"] in text and results["world"] in text


def test_a_bar_in_a_name_does_not_add_a_column(results: dict) -> None:
    results["rows"][0]["name"] = "zero|shot"
    assert "| zero\\|shot |" in report.markdown_table(results)


def test_conclusions_name_the_intervals_that_lie_above(results: dict) -> None:
    lines = report.conclusions(results)
    # 6 of 20 starts at 11.9 %, below the 16.8 % at which 0 of 20 ends; 13 of 20 starts at 40.8 %.
    assert "GRPO, two-pass: the 95 % interval [11.9, 54.3] overlaps zero-shot's [0.0, 16.8]" in lines[1]
    assert "no gain" in lines[1] and "above" not in lines[1]
    assert lines[2] == "Agon, A then B: the 95 % interval [40.8, 84.6] lies above zero-shot's [0.0, 16.8]."
    # The direction that validation did not choose is in the table but draws no conclusion.
    assert not any("B then A" in line for line in lines)


def test_conclusions_switch_with_the_data(results: dict) -> None:
    results["rows"][0]["outcomes"] = "1" * 13 + "0" * 7
    _, two_pass, agon, *_ = report.conclusions(results)
    assert "overlaps" in two_pass and "overlaps" in agon
    results["rows"][0]["outcomes"] = "1" * 20
    assert "[11.9, 54.3] lies below zero-shot's [83.2, 100.0]." in report.conclusions(results)[1]


def test_paired_comparison_of_the_chosen_direction(results: dict) -> None:
    line = report.conclusions(results)[3]
    # 13 - 6 = 7 of 20 is +35 points; 1 lost and 8 gained: p = 20 / 512 = 0.0391 (exact, two-sided).
    assert line.startswith("Agon, A then B minus GRPO, two-pass, paired on the same 20 problems: +35.0 ")
    assert line.endswith("exact McNemar p = 0.0391.")
    # One gain fewer, 1 lost and 7 gained: 2 (1 + 8) / 256 = 0.0703, no difference at 5 %.
    results["rows"][3]["outcomes"] = "0" + "1" * 12 + "0" * 7
    assert "p = 0.0703: no difference shown" in report.conclusions(results)[3]


def test_no_direction_chosen_no_paired_comparison(results: dict) -> None:
    results["rows"][3]["chosen"] = False  # the better direction is not picked on the test set instead
    assert not any("McNemar" in line for line in report.conclusions(results))


def test_unmatched_budgets_are_said(results: dict) -> None:
    assert report.conclusions(results)[-2] == (
        "Training rollouts are matched: GRPO 19,200 with 612.3k + 45.7k tokens; "
        "Agon 19,200 with 612.3k + 1.2M tokens (generated + prefilled)."
    )
    results["training"]["adv"]["rollouts"] = 38400
    line = report.conclusions(results)[-2]
    assert "NOT matched" in line and "GRPO 19,200" in line and "Agon 38,400" in line


def test_the_limits_are_always_said(results: dict) -> None:
    assert report.conclusions(results)[-1] == report.LIMITS
    assert report.conclusions(results | {"rows": results["rows"][:1]})[-1] == report.LIMITS


def test_write_makes_whole_files(results: dict, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    paths = report.write(results, folder)
    names = ["results.json", "table.md", "accuracy_length.png", "training.png"]
    assert [path.name for path in paths] == names
    assert sorted(folder.iterdir()) == sorted(paths)  # and no temporary file
    assert json.loads(paths[0].read_text()) == results
    page = paths[1].read_text()
    assert page.startswith("# Agon against GRPO\n\nWorld: operators: the bundled tiny world.")
    assert "none is the paper's" in page and "20 held-out problems, seed 3, 1,234 s in all." in page
    assert report.markdown_table(results) in page
    assert all(f"- {line}" in page for line in report.conclusions(results))
    for path in paths[2:]:
        pixels = imread(path)[..., :3]
        assert pixels.shape == (750, 1200, 3)
        colours = np.unique((pixels.reshape(-1, 3) * 255).astype(int), axis=0)
        assert {(0, 114, 178), (213, 94, 0)} <= set(map(tuple, colours))  # GRPO's blue, Agon's vermilion


def test_a_failed_write_leaves_the_old_file(results: dict, tmp_path: Path) -> None:
    json_path, *_ = report.write(results, tmp_path)
    before = json_path.read_bytes()
    with pytest.raises(TypeError):
        report.write(results | {"seed": object()}, tmp_path)
    assert json_path.read_bytes() == before
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*"))


def test_curves_of_an_older_run_do_not_survive(results: dict, tmp_path: Path) -> None:
    report.write(results, tmp_path)
    del results["curves"]
    assert "training.png" not in [path.name for path in report.write(results, tmp_path)]
    assert not (tmp_path / "training.png").exists()
    assert "training.png" not in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("rows", [0, 1])
def test_optional_pieces_may_be_missing(results: dict, rows: int, tmp_path: Path) -> None:
    for field in ("training", "curves", "seconds"):
        del results[field]
    results["rows"] = results["rows"][:rows]
    report.write(results, tmp_path)
    report.console_table(results)
    assert report.conclusions(results) == [report.LIMITS]


def test_a_single_problem_is_enough(results: dict, tmp_path: Path) -> None:
    results |= {"num_problems": 1, "rows": [r | {"outcomes": r["outcomes"][0]} for r in results["rows"]]}
    report.write(results, tmp_path)


def test_gaps_in_the_curves(results: dict, tmp_path: Path) -> None:
    results["curves"]["adv"][7]["draft_pass_rate"] = float("nan")
    del results["curves"]["adv"][9]["challenge_pass_rate"]
    results["curves"]["grpo"] = [{"step": 0}]
    lines = report.plot_training(results, tmp_path / "training.png").axes[0].lines
    assert [len(line.get_xdata()) for line in lines] == [59, 59, 59, 59]  # raw and mean, two stages
    assert all(np.isfinite(line.get_ydata()).all() for line in lines)
    assert [line.get_linestyle() for line in lines] == ["-", "-", "--", "--"]


FIELDS = {
    "title": (), "world": (), "num_problems": (), "seed": (), "rows": (),
    "name": ("rows", 2), "outcomes": ("rows", 2), "prefilled_tokens": ("rows", 2),
    "rollouts": ("training", "adv"), "step": ("curves", "adv", 4),
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named_and_the_data_are_kept(results: dict, field: str, tmp_path: Path) -> None:
    place = results
    for key in FIELDS[field]:
        place = place[key]
    del place[field]
    for function in (report.console_table, report.markdown_table, report.conclusions):
        with pytest.raises(ValueError, match=f"missing field '{field}'"):
            function(results)
    with pytest.raises(ValueError, match=f"missing field '{field}'"):
        report.write(results, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("outcomes", ["1" * 19, "1" * 21, "1" * 19 + "x"])
def test_malformed_outcomes_are_named(results: dict, outcomes: str) -> None:
    results["rows"][1]["outcomes"] = outcomes
    with pytest.raises(ValueError, match=r"rows\[1\]: 'outcomes'"):
        report.conclusions(results)


def names_on(figure: Figure) -> dict:
    """Pixel boxes of the written names; Text.get_window_extent leaves the leader out."""
    figure.canvas.draw()
    annotations = [child for child in figure.axes[0].get_children() if isinstance(child, Annotation)]
    return {name.get_text(): Text.get_window_extent(name) for name in annotations}


@pytest.mark.parametrize("spread", [0.0, 0.3, 5.0])
def test_names_never_overlap(results: dict, spread: float, tmp_path: Path) -> None:
    # Eight rows on one spot, in a tight cluster, and apart.
    names = [f"policy number {index}" for index in range(8)]
    results["rows"] = [
        row(name, "adv", "1" * (10 + index % 3) + "0" * (10 - index % 3), 30 + spread * index)
        for index, name in enumerate(names)
    ]
    figure = report.plot_accuracy_length(results, tmp_path / "plot.png")
    boxes = names_on(figure)
    assert sorted(boxes) == names
    frame = figure.axes[0].get_window_extent()
    for first, second in itertools.combinations(boxes.values(), 2):
        assert not first.overlaps(second)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes.values())


def test_the_inputs_are_left_alone(results: dict, tmp_path: Path) -> None:
    before = copy.deepcopy(results)
    report.write(results, tmp_path)
    assert results == before


def test_neither_jax_nor_pyplot_is_imported() -> None:
    code = "import sys, agon_jax.report; print({'jax', 'matplotlib.pyplot'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
