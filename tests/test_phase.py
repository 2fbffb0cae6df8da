"""The phase diagram: what is compared with what, by hand-made paths."""

import json

import numpy as np
import pytest

from agon_jax import phase
from agon_jax.config import default
from agon_jax.report import phase as report


def member(seed, rates, copies=None, margin=None, tokens=(100, 200)):
    own = {
        "seed": seed, "heldout": rates[-1], "validation": {"10": rates[0], "20": rates[1]},
        "tokens": {"10": tokens[0], "20": tokens[1]},
    }  # fmt: skip
    if copies:
        path = {name: list(copies) for name in ("copy_rate", "q", "p", "v")}
        own |= {"path": path, "margin": list(margin), "escape": None}
    return own


def method(name, bonus, members):
    return {"name": name, "bonus": bonus, "members": members}


@pytest.fixture
def results():
    base = {"q": 0.5, "p": 0.4, "v": 0.3, "copy_wrong": 0.45, "copy_right": 0.46, "cascade": 0.45}
    methods = {
        # copying rises where it pays (margin < 0) in both windows
        "coop": method("Coop", 0.0, [
            member(seed, (0.5, 0.6), (0.5, 0.7), (-0.1, -0.2)) for seed in (0, 1)
        ]),
        # seed 0 moves against the margin, seed 1 with it
        "adv": method("Agon", 1.0, [
            member(0, (0.5, 0.7), (0.5, 0.6), (0.1, 0.1)), member(1, (0.5, 0.66), (0.5, 0.3), (0.1, 0.1)),
        ]),
        "coop_floor": method("Floor", None, [
            member(seed, (0.5, 0.6), (0.5, 0.1), (-0.5, -0.5)) for seed in (0, 1)
        ]),
        "grpo": method("GRPO", None, [member(seed, (0.4, 0.8), tokens=(200, 400)) for seed in (0, 1)]),
    }  # fmt: skip
    return {"points": [{"name": "inside", "base": base, "methods": methods}], "steps": 20, "seeds": [0, 1]}


def test_the_running_boundary_is_judged_on_windows_that_moved_without_other_forces(results):
    # coop: copying pays and rises, twice; adv: solving pays, copying rises once and falls once; the floor
    # pushes by itself and is left out, or copying would also fall twice where it pays
    assert report.running_boundary(results).tolist() == [[1, 1], [0, 2]]
    # changes below 0.02 say nothing
    for one in results["points"][0]["methods"]["coop"]["members"]:
        one["path"]["copy_rate"] = [0.5, 0.51]
    assert report.running_boundary(results).tolist() == [[1, 1], [0, 0]]


def test_equal_tokens_are_read_off_between_evaluations(results):
    # GRPO spends 200 tokens in 10 steps and 400 in 20: after 300 it is half way from 40 % to 80 %
    single = results["points"][0]["methods"]["grpo"]["members"][0]
    assert report.at_equal_tokens(single, 300) == pytest.approx(0.6)
    assert report.at_equal_tokens(single, 10_000) == 0.8  # it never spent as much: its last


def test_the_page_holds_prediction_and_measurement(results, tmp_path):
    report.write(results, tmp_path)
    text = (tmp_path / "phase.md").read_text()
    # copying pays 2q = 1.00; solving 2p + bonus (1 - q) v = 0.80, 0.88, 0.95, 1.10
    assert (
        "| inside | 0.80 | 0.500 | 0.400 | 0.300 | 0.450 | 0.460 | 1.00 | 0.80 | 0.88 | 0.95 | 1.10 |" in text
    )
    assert "+8.0 [-17.4, +33.4]" in text  # adv minus coop at 20: +10 and +6, t with one degree of freedom
    assert "3 of 4 windows" in text and "always to say `rises` would be right in 75 %" in text
    # at 20 steps the cascade of adv (0.68) spent 200 tokens: GRPO had 0.4 there, and 0.8 at equal rollouts
    assert "| inside | Agon | 20 | 80.0 [80.0, 80.0] | -12.0 [-37.4, +13.4] | +28.0 [+2.6, +53.4] |" in text
    assert (tmp_path / "phase.png").read_bytes().startswith(b"\x89PNG")


def test_windows_are_averaged_and_an_empty_one_is_none():
    values = [0.0, 1.0] * 5 + [None] * 10 + [None] * 9 + [0.5]
    assert phase._averaged(values) == [0.5, None, 0.5]


def test_a_point_of_its_own_keeps_its_knob():
    config = default()
    own = phase._only(config, ["above", "below"])
    knobs = dict(zip(config.copy_base.points, config.copy_base.solve_hard, strict=True))
    assert own.copy_base.points == ("above", "below")
    assert own.copy_base.solve_hard == (knobs["above"], knobs["below"])


def test_a_member_is_read_from_its_files(tmp_path):
    """Both directions averaged, whichever was chosen; tokens add up; the path is that of ten steps."""
    folder = tmp_path / "seed_4"
    folder.mkdir()
    rows = [
        {
            "step": t,
            "generated_tokens": 7,
            "copy_rate": 0.1 if t >= 10 else 0.8,
            "q": 0.5,
            "boundary_margin": 0.1,
        }
        for t in range(20)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = lambda text, stages, headline: {"outcomes": text, "stages": [{}] * stages, "headline": headline}
    record = {
        "seed": 4,
        "rows": [outcome("0000", 1, False), outcome("1110", 2, True), outcome("1000", 2, False)],
        "evaluations": [{"step": 20, "rates": {"A then B": 0.5, "B then A": 0.7}}],
    }
    own = phase._member(tmp_path, "adv", record)
    assert own["heldout"] == 0.5 and own["validation"] == {"20": pytest.approx(0.6)}
    assert own["tokens"] == {"10": 70, "20": 140}
    np.testing.assert_allclose(own["path"]["copy_rate"], [0.8, 0.1])
    # the mean of ten steps, k of them at 0.1, is 0.8 - 0.07 k: below a half from k = 5, step 14, on
    assert own["path"]["p"] == [None, None] and own["escape"] == 14
