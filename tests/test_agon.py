"""One round of the game with the bundled base: roles, groups, prompts, batch."""

import dataclasses
from concurrent.futures import Future

import jax
import numpy as np
import pytest

from agon_jax import data, sample, setup
from agon_jax.actor import Players
from agon_jax.config import default
from agon_jax.games import agon
from agon_jax.games.metrics import exchange_metrics, round_metrics
from agon_jax.rewards import Outcome, Weights
from agon_jax.text.completion import Completion
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


def play_all(parts, game, seeds, step=0, batch=0):
    """The rounds of a population, each member on batch number `batch` of its own stream."""
    config, p = parts
    adapters = setup.make_population(config, p.actor.base, game.policies, seeds)
    problems = []
    for seed in seeds:
        stream = data.stream(p.splits.train, PROBLEMS, seed)
        problems.append([next(stream) for _ in range(batch + 1)][-1])
    players = Players(adapters, tuple(seeds), game.policies)
    return agon.play(game, p.actor, players, problems, p.sampling, step=step)


def play(parts, game, step=0, seed=0, batch=0):
    return play_all(parts, game, (seed,), step, batch)[0]


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
    batch = agon.to_batch(game, [round_], (24,))
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
        batch = agon.to_batch(GAME, [round_], (24,))
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
    batch = agon.to_batch(GAME, [round_], (1, longest, 24, 30))
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
    metrics = round_metrics(GAME, fake, 0)
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


def test_a_member_of_a_population_plays_as_it_would_alone(parts):
    # one call samples all members in turns, each under its own adapter, keys and problems
    seeds = (3, 1, 2)
    together = play_all(parts, GAME, seeds, step=1)
    for seed, round_ in zip(seeds, together, strict=True):
        alone = play(parts, GAME, step=1, seed=seed)
        for a, b in zip(alone.streams, round_.streams, strict=True):
            assert a.stage.texts == b.stage.texts
            np.testing.assert_array_equal(a.stage.prompts.tokens, b.stage.prompts.tokens)
            np.testing.assert_allclose(a.stage.rollouts.logps, b.stage.rollouts.logps, atol=1e-4)
            np.testing.assert_array_equal(a.rewards, b.rewards)
    assert together[0].drafts.stage.texts != together[1].drafts.stage.texts


def test_the_adapters_of_members_are_told_apart(parts):
    # two members with the same seed and problems, of which one pair is strong noise: a sampler that
    # gave both the first member's adapter would make equal rollouts
    config, p = parts
    pair = setup.make_adapters(config, p.actor.base, 2)
    noisy = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape), pair)
    both = jax.tree.map(lambda a, b: np.concatenate([a, b]), pair, noisy)
    problems = next(data.stream(p.splits.train, PROBLEMS, 0))
    rounds = agon.play(GAME, p.actor, Players(both, (0, 0), 2), [problems] * 2, p.sampling, step=0)
    assert rounds[0].drafts.stage.texts != rounds[1].drafts.stage.texts
    alone = agon.play(GAME, p.actor, Players(noisy, (0,), 2), [problems], p.sampling, step=0)[0]
    for a, b in zip(alone.streams, rounds[1].streams, strict=True):
        assert a.stage.texts == b.stage.texts


def test_the_batch_of_a_population_is_its_members_batches_in_order(parts):
    rounds = play_all(parts, GAME, (0, 1), step=1)
    batch = agon.to_batch(GAME, rounds, (24,))
    assert batch.tokens.shape[:2] == (4, PROBLEMS * K)
    for member, round_ in enumerate(rounds):
        own = agon.to_batch(GAME, [round_], (24,))
        for policy in (0, 1):
            np.testing.assert_array_equal(batch.logps[2 * member + policy], own.logps[policy])


def test_without_exchange_the_second_stream_has_the_plain_prompt_and_other_samples(parts):
    round_ = play(parts, dataclasses.replace(GAME, exchange=False))
    drafts, challenges = round_.drafts.stage, round_.challenges.stage
    np.testing.assert_array_equal(drafts.prompts.tokens, challenges.prompts.tokens)
    assert drafts.texts != challenges.texts


def test_drafts_that_are_not_learnt_from_leave_their_policy_without_an_active_row(parts):
    learn = play(parts, GAME)
    round_ = play(parts, dataclasses.replace(GAME, learn_drafts=False))
    assert round_.drafts.stage.texts == learn.drafts.stage.texts
    assert round_.challenges.stage.texts == learn.challenges.stage.texts  # they are read all the same
    np.testing.assert_array_equal(round_.challenges.active, learn.challenges.active)
    batch = agon.to_batch(GAME, [round_], (24,))
    assert not batch.active[0].any()  # policy 0 drafts at step 0: left as it is by the update


def test_a_shared_opponent_leaves_no_trace_in_the_advantages(parts):
    """Identity (i): the bonus is the same multiple of c for a whole group, so that adv equals coop; with
    paired opponents it does not."""
    drafts = np.array([[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]], np.float32)
    right = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1]], np.float32)

    def advantages(reward, opponent):
        rival = Outcome(drafts.ravel(), np.ones(12, np.float32), np.ones(12, np.float32))
        own = Outcome(right.ravel(), np.ones(12, np.float32), np.ones(12, np.float32))
        if opponent == "shared":
            rival = agon._shared(rival, K)
        rewards = agon.REWARDS[reward](own, rival, Weights())
        return np.asarray(agon._advantages(rewards.reshape(-1, K), "population")[0])

    np.testing.assert_allclose(advantages("adv", "shared"), advantages("coop", "shared"), atol=1e-6)
    np.testing.assert_allclose(advantages("margin", "shared"), advantages("coop", "shared"), atol=1e-6)
    assert np.abs(advantages("adv", "paired") - advantages("coop", "paired")).max() > 0.1


def with_rewards(round_, live):
    """The round under other rewards: groups in `live` carry a signal."""

    def stream(s):
        rewards = np.zeros_like(s.rewards)
        rewards[np.asarray(live), 0] = 1
        active = np.zeros_like(s.active)
        active[np.asarray(live)] = True
        return dataclasses.replace(s, rewards=rewards, active=active)

    return dataclasses.replace(round_, drafts=stream(round_.drafts), challenges=stream(round_.challenges))


def test_problems_without_a_signal_are_refilled_and_all_rollouts_stay_in_the_budget(parts):
    first = with_rewards(play(parts, GAME), [True, False, False])
    extra = with_rewards(play(parts, GAME, batch=1), [False, True, False])
    merged = agon.refill(first, extra)
    # group 0 stays, dead group 1 makes room for the one live group of `extra`, dead group 2 has no heir
    uid = lambda r, group: r.drafts.stage.problems[group * K].uid
    assert [uid(merged, g) for g in range(3)] == [uid(first, 0), uid(first, 2), uid(extra, 1)]
    for stream in merged.streams:
        assert stream.rewards.shape == (PROBLEMS, K) and len(stream.stage.problems) == PROBLEMS * K
    assert merged.live.tolist() == [True, False, True]
    metrics = round_metrics(GAME, merged, 0)
    assert metrics["rollouts"] == 2 * PROBLEMS * 2 * K  # not 24: what was thrown away was paid for
    for name in ("generated_tokens", "prefilled_tokens"):
        parts_of = [round_metrics(GAME, r, 0)[name] for r in (first, extra)]
        assert metrics[name] == sum(parts_of)
    batch = agon.to_batch(GAME, [merged], (24,))
    assert batch.tokens.shape[:2] == (2, PROBLEMS * K)


def test_refilling_from_a_wider_prompt_pads_on_the_left(parts):
    first = with_rewards(play(parts, GAME), [False, True, True])
    extra = with_rewards(play(parts, GAME, batch=1), [True, True, True])
    wide = extra.drafts.stage
    pad = lambda x: np.pad(x, ((0, 0), (5, 0)))
    prompts = dataclasses.replace(wide.prompts, tokens=pad(wide.prompts.tokens), mask=pad(wide.prompts.mask))
    drafts = dataclasses.replace(extra.drafts, stage=dataclasses.replace(wide, prompts=prompts))
    merged = agon.refill(first, dataclasses.replace(extra, drafts=drafts))
    stage = merged.drafts.stage
    assert stage.prompts.tokens.shape[1] == wide.prompts.tokens.shape[1] + 5
    np.testing.assert_array_equal(
        stage.prompts.mask.sum(1)[:K], first.drafts.stage.prompts.mask.sum(1)[K : 2 * K]
    )


def test_exchange_figures_are_left_to_methods_with_an_exchange(parts):
    shown = round_metrics(GAME, play(parts, GAME), 0)
    hidden = dataclasses.replace(GAME, exchange=False)
    unseen = round_metrics(hidden, play(parts, hidden), 0)
    assert "q" in shown and "q" not in unseen and "challenge_pass_rate" in unseen


@pytest.mark.parametrize("shift, copied", [(0, 1.0), (1, 0.0)])
def test_copying_is_agreement_with_the_draft_that_was_shown(parts, shift, copied):
    # every draft of a group answers differently; a challenger repeats its own draft, or its neighbour's,
    # which it never saw: comparing within the group or across groups would call both the same
    round_ = play(parts, GAME)
    answer = lambda row: f"{row // K}/{row % K}"
    said = lambda shift: [
        Completion("", answer(row // K * K + (row + shift) % K), True) for row in range(PROBLEMS * K)
    ]
    stages = [
        dataclasses.replace(judged(s.stage, np.zeros(PROBLEMS * K)), completions=said(by))
        for s, by in zip(round_.streams, (0, shift), strict=True)
    ]
    figures = exchange_metrics(GAME, *stages, K)
    assert figures["copy_rate"] == copied and figures["q"] == 0
    assert figures["agreement"] == (1.0 if shift == 0 else 0.0)
