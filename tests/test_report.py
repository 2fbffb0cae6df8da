"""Tables, figures and files of a report, from made-up results whose numbers are derived by hand."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
from pathlib import Path

import fake_results
import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.text import Annotation, Text
from rich.console import Console

from agon_jax import report
from agon_jax.report import plots, schema, styles, tables

FILES = [
    "results.json",
    "table.md",
    "accuracy_length.png",
    "training.png",
    "diagnostics.png",
    "evaluations.png",
]
FILES += ["index.html"]


@pytest.fixture
def results() -> dict:
    """Three methods, three seeds."""
    skill = {key: fake_results.SKILL[key] for key in ("grpo", "coop", "adv")}
    return fake_results.few_curves(fake_results.make(skill, problems=20, steps=24))


def headlines(results: dict, key: str) -> list[dict]:
    return [schema.headline(member) for member in results["methods"][key]["members"]]


def line(table: tables.Table, *names: str) -> dict[str, str]:
    (found,) = (row for row in table.rows if row[: len(names)] == names)
    return dict(zip(table.columns, found, strict=True))


def test_methods_table_holds_the_hand_derived_numbers(results: dict) -> None:
    for solved, row in zip((10, 11, 12), headlines(results, "adv"), strict=True):
        row |= {"outcomes": "1" * solved + "0" * (20 - solved), "mean_length": 3000.0}
        draft, challenge = row["stages"]
        draft |= {"generated_tokens": 600, "prefilled_tokens": 180}
        challenge |= {
            "generated_tokens": 500,
            "prefilled_tokens": 420,
            "truncated": 0.125,
            "well_formed": 0.75,
        }
    cells = line(tables.methods_table(results), "Agon")
    # 50, 55, 60 %: sd 5, t(0.975, 2) = 4.303, half-width 4.303 x 5 / sqrt(3) = 12.42. Over 60 problems
    # it were Clopper-Pearson's [41.6, 67.9].
    assert (cells["pass@1 %"], cells["95 %"], cells["over"]) == ("55.0", "[42.6, 67.4]", "seeds")
    assert (cells["SD"], cells["seeds"], cells["length"]) == ("5.0", "3", "3.0k")
    assert cells["tokens a problem"] == "55.0 + 30.0"  # (600 + 500) / 20 and (180 + 420) / 20
    assert cells["training rollouts"] == f"{256 * 24:,}"
    assert (cells["cut off %"], cells["well formed %"]) == ("12.5", "75.0")  # of the final stage


def test_one_seed_has_an_interval_over_problems(results: dict) -> None:
    del results["methods"]["adv"]["members"][1:]
    headlines(results, "adv")[0]["outcomes"] = "1" * 13 + "0" * 7
    cells = line(tables.methods_table(results), "Agon")
    # 13 of 20: [40.8, 84.6] is the exact interval printed in statistical tables.
    assert (cells["pass@1 %"], cells["95 %"], cells["over"]) == ("65.0", "[40.8, 84.6]", "problems")
    assert (cells["SD"], cells["seeds"]) == ("–", "1")


def test_all_ways_show_both_directions_stages_and_flips(results: dict) -> None:
    for row in headlines(results, "adv"):
        row["stages"][0]["correct"], row["stages"][1]["correct"] = 8, 11
        row["flips"] = {"kept": 7, "lost": 1, "gained": 4, "failed": 8}
    table = tables.ways_table(results)
    cells = line(table, "Agon", "A then B")
    assert cells["chosen"] == "✓ 3 of 3" and cells["by stage %"] == "40.0 → 55.0"
    assert (cells["gained wrong→right %"], cells["lost right→wrong %"], cells["net"]) == (
        "20.0",
        "5.0",
        "+15.0",
    )
    assert line(table, "Agon", "B then A")["chosen"] == "–"
    assert line(table, "Agon", "A alone")["net"] == "–"
    member = results["methods"]["adv"]["members"][0]
    for row in member["rows"]:
        row["headline"] = row["name"] == "B then A"
    table = tables.ways_table(results)
    assert line(table, "Agon", "A then B")["chosen"] == "✓ 2 of 3"
    assert line(table, "Agon", "B then A")["chosen"] == "✓ 1 of 3"


def test_samples_pairs_and_budget(results: dict) -> None:
    for number, member in enumerate(results["methods"]["adv"]["members"]):
        schema.headline(member)["samples"] = {
            "n": 8, "problems": 16, "pass_at": {"1": 0.5, "8": 0.7 + 0.1 * number}, "majority_at": {"8": 0.6},
        }  # fmt: skip
        member["pair"] = {"disagreement": 0.25, "error_overlap": 0.5, "both_wrong": 0.25, "phi": float("nan")}
    cells = line(tables.samples_table(results), "Agon", "A then B")
    # k in the order of numbers; the mean of 0.7, 0.8, 0.9; what was not measured is no 0.
    assert [cells[name] for name in ("pass@1", "pass@2", "pass@8", "majority@8", "majority@1")] == (
        ["50.0", "–", "80.0", "60.0", "–"]
    )
    assert cells["samples"] == "8 x 16"
    assert line(tables.pairs_table(results), "Agon") == {
        "method": "Agon", "seeds": "3", "disagreement %": "25.0", "error overlap %": "50.0",
        "both wrong %": "25.0", "phi": "–",
    }  # fmt: skip
    assert [row[0] for row in tables.pairs_table(results).rows] == ["Coop", "Agon"]  # GRPO is no pair
    assert line(tables.budget_table(results), "GRPO")["generated tokens"] == "264.0k"  # 24 steps x 11,000


def test_methods_come_in_a_sensible_order(results: dict) -> None:
    results["methods"] = {"new": results["methods"]["coop"] | {"name": "New"}} | dict(
        reversed(results["methods"].items())
    )
    assert [row[0] for row in tables.methods_table(results).rows] == ["GRPO", "Coop", "Agon", "New"]


def test_console_table_fits_80_columns(results: dict) -> None:
    results["methods"]["adv"]["name"] = "Agon [bold]"  # not to be taken for markup
    console = Console(width=80)
    with console.capture() as captured:
        console.print(report.console_table(results))
    text = captured.get()
    full = tables.methods_table(results)
    for row in full.rows:
        cells = dict(zip(full.columns, row, strict=True))
        shown = (
            cells["method"],
            f"{cells['pass@1 %']} {cells['95 %']}",
            cells["length"],
            cells["tokens a problem"],
        )
        assert all(cell in text for cell in shown)
    assert results["title"] in text and max(map(len, text.splitlines())) <= 80


def test_markdown_cells_stay_cells() -> None:
    table = tables.Table("T", "note", ("a", "b"), [("x|y\nz", "<b>")])
    assert tables.markdown(table).splitlines()[-3] == "| x\\|y z | &lt;b&gt; |"


def test_write_makes_whole_files(results: dict, tmp_path: Path) -> None:
    folder, before = tmp_path / "new" / "folder", copy.deepcopy(results)
    paths = report.write(results, folder)
    assert [path.name for path in paths] == FILES
    assert sorted(folder.iterdir()) == sorted(paths)  # and no temporary file
    assert json.loads(paths[0].read_text()) == results == before
    text = paths[1].read_text()
    assert "none is the paper's" in text and "20 held-out problems" in text
    assert all(f"- {sentence}" in text for sentence in report.conclusions(results))
    assert tables.markdown(tables.methods_table(results)) in text
    assert all(f"({path.name})" in text for path in paths[2:-1])
    for path in paths[2:-1]:
        pixels = (imread(path)[..., :3] * 255).round().astype(int) @ [1 << 16, 1 << 8, 1]
        assert (pixels == 0x0072B2).any() and (pixels == 0xD55E00).any()  # GRPO's blue, Agon's vermilion


def test_figures_of_an_older_run_do_not_survive(results: dict, tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_text("old")
    for method in results["methods"].values():
        for member in method["members"]:
            for field in ("curve", "evaluations", "pair", "training"):
                member[field] = None
            for row in member["rows"]:
                row["samples"] = row["flips"] = row["validation"] = None
    paths = report.write(results, tmp_path)
    assert [path.name for path in paths] == ["results.json", "table.md", "accuracy_length.png", "index.html"]
    assert not (tmp_path / "training.png").exists()
    assert "training.png" not in (tmp_path / "table.md").read_text()
    assert "budget unknown" in (tmp_path / "index.html").read_text()


def test_nothing_finished_is_still_a_report(results: dict, tmp_path: Path) -> None:
    for method in results["methods"].values():
        method["members"] = []
    assert [path.name for path in report.write(results, tmp_path)] == [
        "results.json",
        "table.md",
        "index.html",
    ]
    assert "Agon: 0 of 3 seeds are there" in (tmp_path / "index.html").read_text()


def test_a_failed_write_leaves_the_old_file(results: dict, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        report.write(results | {"steps": object()}, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["results.json"] and path.read_text() == "old"


FIELDS = {
    "title": (), "num_problems": (), "methods": (), "seeds": (),
    "passes": ("methods", "adv"), "members": ("methods", "adv"), "seed": ("methods", "adv", "members", 1),
    "rows": ("methods", "adv", "members", 1), "outcomes": ("methods", "adv", "members", 1, "rows", 2),
    "prefilled_tokens": ("methods", "adv", "members", 1, "rows", 2, "stages", 1),
    "gained": ("methods", "adv", "members", 1, "rows", 2, "flips"),
    "pass_at": ("methods", "adv", "members", 1, "rows", 2, "samples"),
    "phi": ("methods", "adv", "members", 1, "pair"), "rollouts": ("methods", "adv", "members", 1, "training"),
    "step": ("methods", "adv", "members", 1, "curve", 3),
    "rates": ("methods", "adv", "members", 1, "evaluations", 0),
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named_and_the_data_are_kept(results: dict, field: str, tmp_path: Path) -> None:
    place = results
    for key in FIELDS[field]:
        place = place[key]
    del place[field]
    for function in (report.console_table, report.conclusions, lambda r: report.write(r, tmp_path)):
        with pytest.raises(ValueError, match=f"missing field '{field}'"):
            function(results)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_malformed_results_are_named(results: dict) -> None:
    adv = results["methods"]["adv"]["members"]
    for outcomes in ("1" * 19, "1" * 21, "1" * 19 + "x"):
        broken = copy.deepcopy(results)
        broken["methods"]["adv"]["members"][0]["rows"][1]["outcomes"] = outcomes
        with pytest.raises(ValueError, match=r"methods\['adv'\].members\[0\].rows\[1\]: 'outcomes'"):
            schema.check(broken)
    adv[2]["seed"] = 0
    with pytest.raises(ValueError, match="two members with one seed"):
        schema.check(results)
    for row in adv[0]["rows"]:
        row["headline"] = False
    with pytest.raises(ValueError, match=r"members\[0\]: exactly one row must be the 'headline'"):
        schema.check(results)


def test_a_band_is_the_mean_and_the_range_of_the_seeds() -> None:
    steps = np.arange(4.0)
    # Short runs are not smoothed. The second seed stopped after two steps.
    where, mean, low, high = plots.band([(steps, steps * 2), (steps[:2], steps[:2] * 4)])
    np.testing.assert_array_equal(where, [0, 1, 2, 3])
    np.testing.assert_array_equal(mean, [0, 3, 4, 6])
    np.testing.assert_array_equal(low, [0, 2, 4, 6])
    np.testing.assert_array_equal(high, [0, 4, 4, 6])
    where, *_ = plots.band([(np.arange(5000.0), np.ones(5000))])
    assert len(where) == plots.MOST_POINTS and where[0] == 0 and where[-1] == 4999


def test_gaps_in_the_curves_are_no_values(results: dict) -> None:
    curve = results["methods"]["adv"]["members"][0]["curve"]
    curve[7]["kl"], curve[9]["kl"] = float("nan"), None
    del curve[11]["kl"]
    (steps, values), *others = schema.curves(results["methods"]["adv"], "kl")
    assert len(steps) == len(values) == 21 and not {7, 9, 11} & set(steps)
    assert [len(steps) for steps, _ in others] == [24, 24]
    assert all(title.title != "Divergence of the two policies" for title in plots.training(results))


@pytest.mark.parametrize("spread", [0.0, 0.3, 5.0])
def test_names_never_overlap(results: dict, spread: float) -> None:
    # Eight methods on one spot, in a tight cluster, and apart.
    names = [f"method number {index}" for index in range(8)]
    member = results["methods"]["adv"]["members"][0]
    results["methods"] = {}
    for index, name in enumerate(names):
        own = copy.deepcopy(member)
        length, solved = 30 + spread * index, 10 + index % 3
        schema.headline(own).update(mean_length=length, outcomes="1" * solved + "0" * (20 - solved))
        results["methods"][name] = {"name": name, "passes": 2, "policies": 2, "members": [own]}
    figure = plots.sheet(results, plots.accuracy_length(results))
    figure.canvas.draw()
    axes = figure.axes[0]
    annotations = [child for child in axes.get_children() if isinstance(child, Annotation)]
    boxes = {each.get_text(): Text.get_window_extent(each) for each in annotations}
    assert sorted(boxes) == names
    frame = axes.get_window_extent()
    for first, second in itertools.combinations(boxes.values(), 2):
        assert not first.overlaps(second)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes.values())


def test_methods_look_different_without_colour() -> None:
    for looks in itertools.combinations(styles.STYLES.values(), 2):
        assert looks[0] != looks[1]
    for colour in {look.colour for look in styles.STYLES.values()}:
        same = [look for look in styles.STYLES.values() if look.colour == colour]
        assert len({look.marker for look in same}) == len({look.dashes for look in same}) == len(same)


def test_neither_jax_nor_pyplot_is_imported() -> None:
    code = "import sys, agon_jax.report; print({'jax', 'matplotlib.pyplot'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
