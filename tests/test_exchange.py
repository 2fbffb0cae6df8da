"""Copy rate beyond chance, p, v and the boundary: by hand, and recovered from a known challenger."""

from __future__ import annotations

import numpy as np
import pytest

from agon_jax.exchange import boundary_ratio, diagnose, escape_step

WEIGHTS = {"correct_weight": 2.0, "conversion_weight": 1.0}


def world(groups: int, group: int, kappa: float, *, wrong_answers: int = 3, seed: int = 0) -> dict:
    """A challenger that copies with probability `kappa`, on problems of very unlike difficulty.

    The right answer is "0". A draft is right with probability u^2, a solver with u^0.5, u uniform by
    problem, so that q = 1/3, p = 2/3, and v < p: problems with wrong drafts are the hard ones.
    v = E[(1 - u^2) u^0.5] / E[1 - u^2] = (2/3 - 2/7) / (2/3) = 4/7. With three wrong answers a
    solver agrees with a draft with probability s = E[u^2.5 + (1 - u^2) (1 - u^0.5) / 3] = 8/21.
    """
    rng = np.random.default_rng(seed)
    ease = rng.random((groups, 1))
    wrong = lambda: rng.integers(1, wrong_answers + 1, (groups, group))
    drafts = np.where(rng.random((groups, group)) < ease**2, 0, wrong())
    solved = np.where(rng.random((groups, group)) < ease**0.5, 0, wrong())
    copied = rng.random((groups, group)) < kappa
    challenges = np.where(copied, drafts, solved)
    return {
        "draft_answers": drafts.astype(str).tolist(),
        "challenge_answers": challenges.astype(str).tolist(),
        "draft_correct": drafts == 0,
        "challenge_correct": challenges == 0,
        "copied": copied,
    }


def hidden(case: dict) -> dict:
    return case | {"copied": None}


def test_copy_rate_by_hand() -> None:
    # One problem, drafts 7 7 8 9, challenges 7 8 8 5; 7 is right.
    # Own draft: challenges 1 and 3 agree, 2/4. (The naive copy rate is 0.5.)
    # Other drafts: challenge 1 (7) meets 7 8 9: 1/3; 2 (8) meets 7 8 9: 1/3; 3 (8) meets 7 7 9: 0;
    # 4 (5): 0. Mean 1/6. Drafts with one another: 1/3, 1/3, 0, 0, mean 1/6.
    # kappa = (1/2 - 1/6) / (1 - 1/6) = 0.4.
    # q = 2/4. c = 1/4: p = (0.25 - 0.4 * 0.5) / 0.6 = 1/12. No wrong draft was converted: v = 0.
    figures = diagnose(
        [["7", "7", "8", "9"]],
        [["7", "8", "8", "5"]],
        np.array([[True, True, False, False]]),
        np.array([[True, False, False, False]]),
        **WEIGHTS,
    )
    assert figures == pytest.approx({
        "agreement": 1 / 2,
        "agreement_by_chance": 1 / 6,
        "copy_rate_raw": 0.4,
        "copy_rate": 0.4,
        "q": 0.5,
        "p": 1 / 12,
        "v": 0.0,
        "payoff_copy": 1.0,
        "payoff_solve": 1 / 6,
        "boundary_margin": 1 / 6 - 1,
    })  # fmt: skip


def test_visible_copying_is_counted() -> None:
    # Of 8 challenges 2 copied (one right, one wrong draft). Of the 6 that solved 3 are right: p =
    # 1/2 (4/8 with the copies, 4/6 over the wrong number). 4 solved with a wrong draft, 1 is right:
    # v = 1/4. q = 3/8. Copy 2 * 3/8 = 0.75; solve 2 * 1/2 + 5/8 * 1/4 = 1.15625.
    draft = np.array([[1, 0, 1, 1], [0, 0, 0, 0]], bool)
    right = np.array([[1, 0, 1, 1], [1, 0, 0, 0]], bool)
    copied = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool)
    answers = [["a", "b", "a", "a"], ["b", "c", "d", "e"]]
    challenges = [["a", "b", "a", "a"], ["a", "x", "y", "z"]]
    figures = diagnose(answers, challenges, draft, right, copied=copied, **WEIGHTS)
    expected = {"copy_rate": 2 / 8, "q": 3 / 8, "p": 1 / 2, "v": 1 / 4, "payoff_copy": 0.75}
    expected |= {"payoff_solve": 1.15625, "boundary_margin": 0.40625}
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    # The estimate from agreement stays beside the count: own 4/8, by chance (3 * 2/3 + 0) / 8 = 1/4,
    # drafts with one another (3 * 2/3 + 0) / 8 = 1/4, so 1/3.
    assert figures["copy_rate_raw"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("visible", [False, True])
def test_a_known_challenger_is_recovered(kappa: float, visible: bool) -> None:
    case = world(6000, 4, kappa)
    figures = diagnose(**(case if visible else hidden(case)), **WEIGHTS)
    # Agreement alone is kappa + (1 - kappa) 8/21: it would call 38 % of the solvers copiers.
    assert figures["agreement"] == pytest.approx(kappa + (1 - kappa) * 8 / 21, abs=0.02)
    assert figures["copy_rate_raw"] == pytest.approx(kappa, abs=0.02)
    assert figures["copy_rate"] == pytest.approx(kappa, abs=0.02)
    # v taken as p (independent errors) would be 0.667, and as P(right | draft wrong), copies
    # included, 0.57, 0.40, 0.11.
    found = [figures[name] for name in ("q", "p", "v")]
    assert found == pytest.approx([1 / 3, 2 / 3, 4 / 7], abs=0.03)
    assert figures["boundary_margin"] == pytest.approx(2 * 2 / 3 + 2 / 3 * 4 / 7 - 2 / 3, abs=0.08)


def test_answers_with_two_values_agree_by_chance() -> None:
    # Nobody copies; drafts and challenges are coin flips. They agree half of the time, which a rate
    # of agreement calls copying.
    drafts, challenges = np.random.default_rng(1).integers(0, 2, (2, 4000, 4))
    figures = diagnose(
        drafts.astype(str).tolist(), challenges.astype(str).tolist(), drafts == 0, challenges == 0, **WEIGHTS
    )
    assert figures["agreement"] == pytest.approx(0.5, abs=0.02)
    assert figures["copy_rate_raw"] == pytest.approx(0.0, abs=0.03)
    assert 0 <= figures["copy_rate"] < 0.03


def test_copy_rate_is_clipped_and_its_raw_value_kept() -> None:
    # Each challenge gives the other's draft: own 0, others 1, drafts never agree: kappa = -1.
    right = np.array([[True, False]])
    figures = diagnose([["a", "b"]], [["b", "a"]], right, ~right, **WEIGHTS)
    assert (figures["copy_rate_raw"], figures["copy_rate"]) == (-1.0, 0.0)
    assert (figures["p"], figures["v"]) == (0.5, 1.0)  # everyone solved


def test_missing_answers_agree_with_nothing() -> None:
    # Two drafts are missing and cannot be copied; the two others were: kappa = 1. With missing ones
    # counted as disagreement it would be (2/4 - 1/12) / 1 = 0.42. The two challenges of the missing
    # drafts solved, one of them right: p = v = 1/2.
    drafts, challenges = [["a", "b", None, None]], [["a", "b", "a", None]]
    draft_right = np.array([[True, False, False, False]])
    challenge_right = np.array([[True, False, True, False]])
    figures = diagnose(drafts, challenges, draft_right, challenge_right, **WEIGHTS)
    assert (figures["agreement"], figures["agreement_by_chance"], figures["copy_rate"]) == (1.0, 0.0, 1.0)
    assert (figures["p"], figures["v"]) == (0.5, 0.5)
    # Missing challenges: nothing agrees, nothing was copied.
    nothing = diagnose(
        [["a", "b"]], [[None, None]], np.array([[True, False]]), np.zeros((1, 2), bool), **WEIGHTS
    )
    assert (nothing["agreement"], nothing["copy_rate_raw"]) == (0.0, 0.0)


def test_missing_answers_do_not_bias_the_copy_rate() -> None:
    # Three in ten drafts lose their answer; a challenger of such a draft solves. With missing answers
    # counted as disagreement the difference would be kappa (m - D - (1 - m) s), m = 0.7, over 1 - D:
    # 0.32.
    case = world(6000, 4, 0.6)
    missing = np.random.default_rng(2).random((6000, 4)) < 0.3
    solved = world(6000, 4, 0.0)  # the same draws, but nobody copies
    case["draft_answers"] = np.where(missing, None, case["draft_answers"]).tolist()
    case["challenge_answers"] = np.where(
        missing, solved["challenge_answers"], case["challenge_answers"]
    ).tolist()
    case["challenge_correct"] = np.where(missing, solved["challenge_correct"], case["challenge_correct"])
    case["draft_correct"] = case["draft_correct"] & ~missing
    figures = diagnose(**hidden(case), **WEIGHTS)
    assert figures["copy_rate"] == pytest.approx(0.6, abs=0.03)
    assert figures["p"] == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize(
    "drafts, challenges, right, missing",
    [
        # All drafts agree: no other answer to compare with, kappa = 0 / 0.
        ([["a", "a"]], [["a", "b"]], [[1, 1]], {"copy_rate_raw", "copy_rate", "p", "v"}),
        # One draft a problem, or one with an answer: no other drafts.
        ([["a"]], [["a"]], [[1]], {"agreement", "agreement_by_chance", "copy_rate", "p", "v"}),
        ([["a", None]], [["a", "a"]], [[1, 0]], {"agreement", "agreement_by_chance", "copy_rate", "p", "v"}),
        # Own 3/4, others 1/12, drafts 1/6: kappa = 0.8, so that 0.8 of the 4 challenges solved: too
        # few to say how well.
        ([["a", "a", "b", "c"]], [["x", "a", "b", "c"]], [[0, 0, 1, 0]], {"p", "v", "payoff_solve"}),
        # Everybody copies: nobody solves, 0 / 0.
        ([["a", "b"]], [["a", "b"]], [[1, 0]], {"p", "v", "payoff_solve", "boundary_margin"}),
    ],
)
def test_what_cannot_be_estimated_is_left_out(drafts, challenges, right, missing) -> None:
    right = np.array(right, bool)
    figures = diagnose(drafts, challenges, right, right, **WEIGHTS)
    assert not missing & figures.keys()
    assert {"q", "payoff_copy"} <= figures.keys()
    assert np.isfinite(list(figures.values())).all()


def test_v_does_not_matter_where_no_draft_is_wrong() -> None:
    # q = 1: the bonus 1 - q is 0 whatever v. Solve 2 * 1/2, copy 2.
    true = np.ones((1, 2), bool)
    figures = diagnose([["a", "a"]], [["b", "a"]], true, np.array([[0, 1]], bool), copied=~true, **WEIGHTS)
    assert "v" not in figures
    assert (figures["payoff_solve"], figures["boundary_margin"]) == (1.0, -1.0)


def test_pooling_groups_is_what_makes_the_estimate_precise() -> None:
    # 32 problems x 4 rollouts, one step: a spread of 0.07; 20 steps pooled: 1 / sqrt(20) of it.
    steps = [hidden(world(32, 4, 0.5, seed=seed)) for seed in range(200)]
    alone = [diagnose(**step, **WEIGHTS)["copy_rate_raw"] for step in steps]
    pooled = []
    for start in range(0, 200, 20):
        joined = {
            key: [row for step in steps[start : start + 20] for row in step[key]]
            for key in steps[0]
            if key != "copied"
        }
        joined |= {key: np.array(joined[key]) for key in ("draft_correct", "challenge_correct")}
        pooled.append(diagnose(**joined, **WEIGHTS)["copy_rate_raw"])
    assert 0.04 < np.std(alone) < 0.2
    assert np.std(pooled) < 0.5 * np.std(alone)
    assert np.mean(pooled) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"challenge_answers": [["a", "b"], ["a", "b"]]}, "1 groups of drafts and 2 of challenges"),
        ({"challenge_answers": [["a"]]}, r"sizes \[1, 2\]"),
        ({"draft_answers": [], "challenge_answers": []}, "0 groups"),
        ({"draft_answers": [[]], "challenge_answers": [[]]}, r"sizes \[0\]"),
        ({"draft_correct": np.array([[True]])}, "draft_correct"),
        ({"challenge_correct": np.array([[1.0, 0.0]])}, "challenge_correct must be bool"),
        ({"copied": np.array([True, False])}, "copied"),
    ],
)
def test_bad_arguments_are_named(change: dict, message: str) -> None:
    right = np.array([[True, False]])
    case = {"draft_answers": [["a", "b"]], "challenge_answers": [["a", "b"]]}
    case |= {"draft_correct": right, "challenge_correct": right}
    with pytest.raises(ValueError, match=message):
        diagnose(**(case | change), **WEIGHTS)


def test_boundary_ratio_by_hand() -> None:
    # 2 / (2 + 0.5) = 0.8; without a bonus or with nothing to convert, 1.
    assert boundary_ratio(0.5, 2.0, 1.0) == pytest.approx(0.8)
    assert boundary_ratio(0.5, 2.0, 0.0) == boundary_ratio(1.0, 2.0, 1.0) == 1.0
    for arguments in [(1.1, 2.0, 1.0), (0.5, 0.0, 1.0), (0.5, 2.0, -1.0), (float("nan"), 2.0, 1.0)]:
        with pytest.raises(ValueError):
            boundary_ratio(*arguments)


def test_at_the_boundary_copying_and_solving_earn_the_same() -> None:
    # q = 1/2; 4 of 10 solve right whatever the draft: v = p = 0.4 = 0.8 q, the boundary.
    draft = np.array([[1] * 5 + [0] * 5] * 2, bool)
    right = np.array([[1, 1, 0, 0, 0, 1, 1, 0, 0, 0]] * 2, bool)
    names = np.where(draft, "a", "b").tolist()
    figures = diagnose(names, names, draft, right, copied=np.zeros_like(draft), **WEIGHTS)
    assert figures["p"] / figures["q"] == pytest.approx(boundary_ratio(0.5, 2.0, 1.0))
    assert figures["boundary_margin"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "rates, window, step",
    [
        # Means of two: .9 .7 .4 .3 .6 .7 .3 .2: below from index 7 on; index 3 is a dip that ends.
        ([0.9, 0.9, 0.5, 0.3, 0.3, 0.9, 0.5, 0.1, 0.3], 2, 7),
        ([0.1, 0.1, 0.1], 2, 1),  # never copied: the first full window
        ([0.9, 0.9, 0.9], 2, None),
        ([0.1, 0.1, 0.9], 2, None),  # the end is not below: mean 0.5 is not below 0.5
        ([0.1], 2, None),  # no full window
        ([], 1, None),
        ([0.6, 0.4], 1, 1),
    ],
)
def test_escape_step_by_hand(rates: list[float], window: int, step: int | None) -> None:
    assert escape_step(rates, window=window) == step


def test_escape_step_refuses_nonsense() -> None:
    for arguments in [{"copy_rates": [[0.1]]}, {"copy_rates": [np.nan]}, {"copy_rates": [0.1], "window": 0}]:
        with pytest.raises(ValueError):
            escape_step(**arguments)
