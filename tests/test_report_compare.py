"""What may be claimed of a pair of methods, from outcomes whose figures are derived by hand."""

from __future__ import annotations

import fake_results
import pytest

from agon_jax.report import compare, conclusions
from agon_jax.report.compare import comparisons, holm
from agon_jax.report.formats import points

PROBLEMS = 100


def made(solved: dict[str, list[int]], **outcomes: list[str]) -> dict:
    """Results in which method m, seed s solves the first solved[m][s] problems, or as `outcomes` says."""
    rows = {
        key: ["1" * n + "0" * (PROBLEMS - n) for n in counts] for key, counts in solved.items()
    } | outcomes
    results = fake_results.make(
        dict.fromkeys(rows, 0.5), seeds=max(map(len, rows.values())), problems=PROBLEMS, steps=4
    )
    for key, strings in rows.items():
        members = results["methods"][key]["members"] = results["methods"][key]["members"][: len(strings)]
        for member, string in zip(members, strings, strict=True):
            next(row for row in member["rows"] if row["headline"])["outcomes"] = string
    return results


def only(results: dict) -> compare.Comparison:
    (found,) = comparisons(results)
    return found


def test_a_difference_that_every_interval_shows() -> None:
    found = only(made({"coop": [50, 52, 48], "adv": [60, 63, 57]}))
    # Paired: +10, +11, +9 points, sd 1, half-width 4.303 x 1 / sqrt(3) = 2.484. Not paired it were
    # sqrt(2^2 / 3 + 3^2 / 3) = 2.08 times the quantile of about 3.5 degrees of freedom, 2.94: 6.1.
    assert found.effect == pytest.approx(0.10)
    assert (found.low, found.high) == pytest.approx((0.07516, 0.12484), abs=1e-5)
    assert found.sd == pytest.approx(0.01)
    # t = 10 sqrt(3) = 17.32 with 2 degrees: p = 1 - t / sqrt(t^2 + 2) = 1 - 17.32 / 17.378 = 0.0033.
    assert found.p == pytest.approx(0.003317, abs=1e-5)
    assert found.level == "higher" and found.badge == "shown: higher"
    assert found.verdict.startswith("Agon is above Coop: +10.0 points [+7.5, +12.5] over 3 seeds.")


def test_the_sign_follows_the_first_method() -> None:
    found = only(made({"adv": [50, 52, 48], "coop": [60, 63, 57]}))
    assert found.effect == pytest.approx(-0.10)
    assert found.level == "lower"
    assert found.verdict.startswith("Agon is below Coop: −10.0 points [−12.5, −7.5]")


def test_no_difference_says_what_it_fits_and_how_many_seeds_would_tell() -> None:
    found = only(made({"coop": [50, 50, 50], "adv": [49, 50, 54]}))
    # -1, 0, +4: mean 1, sd sqrt(7) = 2.646, half-width 4.303 x 2.646 / sqrt(3) = 6.572.
    assert found.level == "none" and found.badge == "no difference shown"
    assert (
        "+1.0 points [−5.6, +7.6] over 3 seeds fits a loss of 5.6 as well as a gain of 7.6" in found.verdict
    )
    # (1.960 + 0.842)^2 x (2.646 / effect)^2 + 1.96^2 / 2: 54.9 + 1.9 = 57 at 1 point, 13.7 + 1.9 = 16 at 2.
    assert found.verdict.endswith("57 seeds for the observed +1.0 points and 16 seeds for 2 points.")
    assert "above" not in found.verdict and "below" not in found.verdict


def test_few_problems_leave_a_steady_difference_open() -> None:
    # 20 problems won, 18 lost: +2 points on every seed, one problem more on the last. Over seeds
    # 2.33 +- 1.43 excludes 0; over 100 problems the standard error is sqrt(0.38 / 100) = 6 points.
    coop = "1" * 18 + "0" * 20 + "0" * 62
    adv = ["0" * 18 + "1" * 20 + "0" * 62] * 2 + ["0" * 18 + "1" * 21 + "0" * 61]
    found = only(made({}, coop=[coop] * 3, adv=adv))
    assert (found.low, found.high) == pytest.approx((0.00899, 0.03768), abs=1e-4)
    assert found.wide[0] < 0 < found.wide[1]
    assert found.level == "open"
    assert "seeds and problems together includes 0" in found.verdict
    assert "above" not in found.verdict


def test_holm_is_over_the_headlines_and_over_the_others_apart() -> None:
    # 3 x 0.01; then 2 x 0.03; 0.04 may not fall below that. Bonferroni: 0.03, 0.12, 0.09.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([float("nan"), 0.2]) == [1.0, 0.4]
    solved = {"coop": [50, 52, 48], "adv": [60, 63, 57], "grpo_cascade": [40, 41, 42], "margin": [50, 51, 50]}
    solved |= {"self_refine": [41, 43, 42]}
    families = {each.pair[:2]: each.family for each in comparisons(made(solved))}
    assert families == {
        ("adv", "coop"): 3, ("adv", "grpo_cascade"): 3, ("coop", "grpo_cascade"): 3,
        ("adv", "self_refine"): 3, ("coop", "self_refine"): 3, ("margin", "coop"): 3,
    }  # fmt: skip


def test_correction_can_unsettle_a_difference() -> None:
    # adv - coop: 5, 8, 6, mean 6.33, sd 1.528, t = 7.18, p = 0.019 alone; three times that in a family
    # where it is the smallest: 0.057.
    solved = {"coop": [50, 50, 50], "adv": [55, 58, 56], "grpo_cascade": [50, 58, 48]}
    found = comparisons(made(solved))[0]
    assert found.p == pytest.approx(0.0188, abs=1e-3)
    assert found.holm == pytest.approx(3 * found.p)
    assert found.level == "open"
    assert "Not settled: corrected for 3 comparisons, p = 0.057." in found.verdict
    del solved["grpo_cascade"]
    assert only(made(solved)).level == "higher"


def test_unmatched_rollouts_refuse_the_comparison() -> None:
    results = made({"coop": [50, 52, 48], "adv": [60, 63, 57]})
    for member in results["methods"]["adv"]["members"]:
        member["training"]["rollouts"] *= 2
    found = only(results)
    assert found.level == "unmatched" and found.badge == "NOT MATCHED"
    assert "Agon was trained on 2.00 times the rollouts of Coop" in found.verdict
    assert "may come from the budget" in found.verdict
    assert "above" not in found.verdict and "matched, " not in found.verdict


def test_one_seed_with_other_rollouts_is_enough_to_refuse() -> None:
    results = made({"coop": [50, 52, 48], "adv": [60, 63, 57]})
    costs = [member["training"] for member in results["methods"]["adv"]["members"]]
    costs[0]["rollouts"] *= 2
    costs[1]["rollouts"] = 0  # the means of both methods are the same
    assert only(results).level == "unmatched"


def test_a_cascade_costs_what_its_checkpoint_cost() -> None:
    results = made({"grpo": [40] * 3, "grpo_cascade": [41, 42, 43], "adv": [60, 63, 57]})
    assert {each.budget.status for each in comparisons(results)} == {"matched"}
    for member in results["methods"]["grpo"]["members"]:
        member["training"]["rollouts"] *= 2
    (found,) = comparisons(results)
    assert found.pair[:2] == ("adv", "grpo_cascade")
    assert "Agon was trained on 0.50 times the rollouts of GRPO, two passes" in found.verdict


def test_an_unknown_budget_is_not_called_matched() -> None:
    results = made({"coop": [50, 52, 48], "adv": [60, 63, 57]})
    results["methods"]["coop"]["members"][1]["training"] = None
    found = only(results)
    assert found.badge == "budget unknown" and "Training budget unknown" in found.verdict
    assert "above" not in found.verdict


def test_untrained_methods_are_said_to_be() -> None:
    found = {
        each.pair[:2]: each for each in comparisons(made({k: [30, 32] for k in ("zero_shot", "moa", "grpo")}))
    }
    assert found["grpo", "zero_shot"].budget.status == "untrained"
    assert "Zero-shot is not trained" in found["grpo", "zero_shot"].verdict
    assert found["moa", "zero_shot"].budget.status == "matched"


def test_inference_is_compared_by_passes_and_tokens() -> None:
    # In the made-up results a pass generates 45 tokens; the second prefills 29, the first 9.
    results = made({"grpo": [40] * 2, "coop": [50, 52]})
    found = only(results)
    assert not found.same_inference
    assert (
        "Coop: 2 passes, 128.0 tokens a problem; GRPO: 1 pass, 54.0 tokens a problem (2.37 times)"
        in found.verdict
    )
    pair = made({"coop": [50, 52], "adv": [50, 52]})
    assert only(pair).same_inference
    for member in pair["methods"]["adv"]["members"]:
        for stage in next(row for row in member["rows"] if row["headline"])["stages"]:
            stage["generated_tokens"] *= 2  # 218 against 128 tokens, both with two passes
    assert not only(pair).same_inference and "(1.70 times)" in only(pair).verdict


def test_one_seed_speaks_of_the_runs_alone() -> None:
    found = only(made({"coop": [50], "adv": [60]}))
    # 10 gained, none lost: exact McNemar 2 / 2^10 = 0.00195.
    assert found.p == pytest.approx(2 / 1024) and found.over == "problems" and found.wide is None
    assert found.level == "single" and found.badge == "one seed"
    assert found.verdict.startswith("One seed: these two runs differ on these problems, +10.0 points [")
    assert "nothing of the methods" in found.verdict and "two seeds are needed" in found.verdict
    # 5 gained: 2 / 2^5 = 0.0625.
    assert "are not shown to differ" in only(made({"coop": [50], "adv": [55]})).verdict


def test_seeds_that_one_method_lacks_are_left_out_and_said() -> None:
    results = made({"coop": [50, 90, 52], "adv": [60, 61, 63]})
    del results["methods"]["coop"]["members"][1]
    found = only(results)
    assert found.seeds == (0, 2) and found.effect == pytest.approx(0.105)  # 10 and 11; with seed 1: -2.7
    assert "Coop: 2 of 3 seeds are there (without 1)." in conclusions(results)
    results["methods"]["coop"]["members"] = []
    assert comparisons(results) == []
    lines = conclusions(results)
    assert lines[0] == "Does competition help beyond cooperation? Not answered: no run of Coop."
    assert lines[1].endswith("Not answered: no run of GRPO with two passes.")


def test_no_common_seed_is_no_answer() -> None:
    results = made({"coop": [50, 51], "adv": [60, 61]})
    del results["methods"]["coop"]["members"][0], results["methods"]["adv"]["members"][1]
    assert "Not answered: no common seed." in conclusions(results)[0]


def test_equal_differences_are_not_taken_for_certain() -> None:
    # +10 on both seeds: no spread, the t-test is undefined, and no verdict may rest on it.
    found = only(made({"coop": [50, 52], "adv": [60, 62]}))
    assert found.sd == 0 and found.holm == 1.0 and found.level == "open"


def test_a_difference_that_rounds_to_zero_has_no_sign():
    assert [points(x) for x in (-0.0001, 0.0, 0.0001)] == ["0.0"] * 3  # else: −0.0, +0.0, +0.0
    assert [points(x) for x in (-0.0006, 0.041)] == ["−0.1", "+4.1"]
