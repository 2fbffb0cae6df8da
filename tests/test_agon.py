"""One round of the game with the bundled base: roles, groups, prompts, batch."""

import dataclasses
from concurrent.futures import Future

import jax
import numpy as np
import pytest

from agon_jax import data, sample, setup
from agon_jax.config import default
from agon_jax.games import agon
from agon_jax.rewards import Weights
from agon_jax.verify.grade import Grade

K, PROBLEMS = 4, 3


@pytest.fixture(scope="module")
def parts():
    config = default().unlock()
    config.data.update(dict(train=40, validation=4, heldout=8, problems_per_step=PROBLEMS))
    config.data.update(dict(prompt_buckets=(9, 25), max_attempt_tokens=14))
    config.sampling.max_new_tokens = 24
    config.mesh = (1, 1, 1)
    return config, setup.make_parts(config.lock(), jax.devices()[:1])


def play(parts, game, step=0, seed=0):
    config, p = parts
    adapters = setup.make_adapters(config, p.actor.base, game.policies)
    problems = next(data.stream(p.splits.train, PROBLEMS, seed))
    return agon.play(game, p.actor, adapters, problems, p.sampling, seed=seed, step=step)


GAME = agon.Agon(group_size=K)


def test_roles_swap_at_every_step_and_stay_fixed_when_asked():
    assert [GAME.roles(t) for t in range(4)] == [(0, 1), (1, 0), (0, 1), (1, 0)]
    fixed = dataclasses.replace(GAME, rotate=False)
    assert [fixed.roles(t) for t in range(3)] == [(0, 1)] * 3
    single = agon.Agon(policies=1, challenge=False)
    assert [single.roles(t) for t in range(3)] == [(0, 0)] * 3


@pytest.mark.parametrize("policies, challenge", [(2, True), (1, True), (1, False)])
def test_every_variant_makes_2k_rollouts_a_problem(parts, policies, challenge):
    game = agon.Agon(policies=policies, challenge=challenge, group_size=K)
    round_ = play(parts, game)
    assert (
        sum(len(s.stage.problems) for s in round_.streams)
        == PROBLEMS * 2 * K
        == PROBLEMS * game.rollouts_per_problem
    )
    batch = agon.to_batch(game, round_, (24,))
    assert batch.tokens.shape[:2] == (policies, PROBLEMS * 2 * K // policies)


def test_a_group_holds_one_problem(parts):
    # tiled order p1 p2 p3 p1 ... reshaped to [P, K] would mix problems in a group
    round_ = play(parts, GAME)
    for stream in round_.streams:
        for group in range(PROBLEMS):
            rows = stream.stage.problems[group * K : (group + 1) * K]
            assert len({row.uid for row in rows}) == 1
        assert stream.rewards.shape == (PROBLEMS, K)


def test_each_challenge_reads_its_own_draft_and_never_its_private_reasoning(parts):
    _, p = parts
    round_ = play(parts, GAME)
    drafts, challenges = round_.drafts.stage, round_.challenges.stage
    for row, completion in enumerate(drafts.completions):
        shown = p.actor.shown_attempt(drafts.problems[row], completion)
        ids = challenges.prompts.tokens[row][challenges.prompts.mask[row]]
        text = p.actor.tokenizer.decode(ids[None], np.ones((1, len(ids)), bool))[0]
        assert f"<attempt> {shown}".strip() in text and "<think>" not in text and "<answer>" not in text


def test_coop_and_adv_make_byte_identical_prompts(parts):
    rounds = [play(parts, dataclasses.replace(GAME, reward=reward)) for reward in ("coop", "adv", "margin")]
    for other in rounds[1:]:
        np.testing.assert_array_equal(
            rounds[0].challenges.stage.prompts.tokens, other.challenges.stage.prompts.tokens
        )
        assert rounds[0].challenges.stage.texts == other.challenges.stage.texts


def test_the_trained_ids_are_the_sampled_ids_in_policy_order(parts):
    # never text encoded again; at an odd step policy 1 drafts, and row 0 of the batch is policy 0
    for step in (0, 1):
        round_ = play(parts, GAME, step=step)
        batch = agon.to_batch(GAME, round_, (24,))
        by_policy = {s.stage.policy: s for s in round_.streams}
        assert round_.drafts.stage.policy == step
        for policy in (0, 1):
            rollouts = by_policy[policy].stage.rollouts
            np.testing.assert_array_equal(batch.tokens[policy][:, -24:], rollouts.tokens)
            np.testing.assert_array_equal(batch.logps[policy], rollouts.logps)
            np.testing.assert_array_equal(batch.completion_mask[policy], rollouts.mask)
            np.testing.assert_array_equal(batch.advantages[policy], by_policy[policy].advantages.ravel())
            np.testing.assert_array_equal(batch.active[policy], by_policy[policy].active.ravel())


def test_batch_rows_are_cut_to_the_smallest_bucket_that_holds_them(parts):
    round_ = play(parts, GAME)
    longest = max(int(s.stage.rollouts.mask.sum(1).max()) for s in round_.streams)
    batch = agon.to_batch(GAME, round_, (1, longest, 24, 30))
    assert batch.completion_mask.shape[-1] == longest
    assert batch.tokens.shape[-1] == round_.challenges.stage.prompts.tokens.shape[1] + longest


def test_rotation_does_not_recompile(parts):
    play(parts, GAME, step=0)
    compiled = sample._sample._cache_size()
    for step in (1, 2, 3):
        play(parts, GAME, step=step)
    assert sample._sample._cache_size() == compiled


def test_prompt_lengths_share_buckets(parts):
    # one compilation for every prompt that fits 9 tokens, one for 25; each length its own would be a bug
    _, p = parts
    for length in (7, 9, 8, 7, 9):
        rows = [([5] * length, "")]
        assert p.actor._bucket(rows) == 9
    assert p.actor._bucket([([5] * 10, "")]) == 25
    with pytest.raises(ValueError, match="prompt_buckets"):
        p.actor._bucket([([5] * 26, "")])


def test_a_long_summary_is_cut_to_the_cap(parts):
    _, p = parts
    problem = p.splits.train[0]
    from agon_jax.text.completion import Completion

    shown = p.actor.shown_attempt(problem, Completion(" ".join(["5"] * 40 + ["+"]), None, False))
    assert shown == " ".join(["5"] * 14)


def test_samples_of_a_step_do_not_depend_on_how_rows_are_split_into_calls(parts):
    config, p = parts
    whole = play(parts, GAME)
    split = play((config, dataclasses.replace(p, actor=dataclasses.replace(p.actor, rows_per_call=5))), GAME)
    for a, b in zip(whole.streams, split.streams, strict=True):
        np.testing.assert_array_equal(a.stage.rollouts.tokens, b.stage.rollouts.tokens)


def judged(stage, correct):
    """The stage under other verdicts."""
    verdicts = Future()
    verdicts.set_result([Grade(bool(c), None, "") for c in correct])
    return dataclasses.replace(stage, judged=verdicts)


def test_exchange_metrics_by_hand(parts):
    round_ = play(parts, GAME)
    d, c = round_.drafts.stage, round_.challenges.stage
    n = len(d.problems)
    right = np.zeros(n, np.float32)
    right[: n // 2] = 1  # drafts: first half right
    challenge_right = np.zeros(n, np.float32)
    challenge_right[n // 4 :] = 1  # challenges: all but the first quarter right
    fake = dataclasses.replace(
        round_,
        drafts=dataclasses.replace(round_.drafts, stage=judged(d, right)),
        challenges=dataclasses.replace(round_.challenges, stage=judged(c, challenge_right)),
    )
    metrics = agon.round_metrics(GAME, fake, 0)
    # wrong drafts all converted; half of the right drafts kept
    assert (metrics["conversion_rate"], metrics["keep_rate"]) == (1.0, 0.5)
    assert (metrics["draft_pass_rate"], metrics["challenge_pass_rate"]) == (0.5, 0.75)


def test_a_row_is_active_when_its_group_has_a_signal_and_it_is_not_masked(parts):
    stage = play(parts, GAME).drafts.stage
    finished = np.array([1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1], bool)
    stage = dataclasses.replace(stage, rollouts=dataclasses.replace(stage.rollouts, finished=finished))
    rewards = np.array([0, 1, 2, 1, 3, 3, 3, 3, 0, 0, 0, 2], np.float32)
    live = np.array([[True], [False], [True]])
    plain = agon._pay(GAME, stage, rewards, K)
    # rewards 0 1 2 1: read off the advantages, the second and the fourth would be inactive
    np.testing.assert_array_equal(plain.active, np.broadcast_to(live, (3, K)))
    np.testing.assert_allclose(plain.advantages[0], [-(2**0.5), 0, 2**0.5, 0], rtol=1e-6)
    masked = agon._pay(dataclasses.replace(GAME, mask_truncated=True), stage, rewards, K)
    np.testing.assert_array_equal(masked.active, live & finished.reshape(3, K))
    # a masked completion still counts in its group's mean
    np.testing.assert_array_equal(masked.advantages, plain.advantages)
    centred = agon._pay(dataclasses.replace(GAME, advantage_std="none"), stage, rewards, K)
    np.testing.assert_allclose(centred.advantages[2], [-0.5, -0.5, -0.5, 1.5])


def test_the_weights_of_the_config_reach_the_reward(parts):
    free = Weights(correct=0.0, format=0.0, conversion=0.0, length=0.0)
    round_ = play(parts, dataclasses.replace(GAME, weights=free))
    for stream in round_.streams:
        assert not stream.rewards.any() and not stream.advantages.any()
