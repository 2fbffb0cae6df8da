"""The rows of the experiment: what tells them apart, and that nothing else does."""

import dataclasses

import pytest

from agon_jax import setup
from agon_jax.main import load_config
from agon_jax.methods import METHODS

TWELVE = (
    "zero_shot", "grpo", "self_refine", "grpo_cascade", "moa", "shared_opponent", "coop", "adv", "margin",
    "fixed_roles", "tie_break", "hidden_drafts",
)  # fmt: skip
MODELS = ("tiny", "qwen3_0.6b", "qwen3_1.7b", "qwen3_4b", "qwen3.5_2b", "gemma4_e4b")


def game(key):
    return setup.make_game(load_config(f"configs/{key}.py"), key)


def differing(first, second):
    a, b = (dataclasses.asdict(game(key)) for key in (first, second))
    return {name for name in a if a[name] != b[name]}


@pytest.mark.parametrize(
    "first, second, fields",
    [
        ("adv", "coop", {"reward"}),
        ("adv", "margin", {"reward"}),
        ("adv", "tie_break", {"reward"}),
        ("adv", "fixed_roles", {"rotate"}),
        ("adv", "hidden_drafts", {"exchange"}),
        ("hidden_drafts", "shared_opponent", {"opponent"}),
        ("coop", "plain_pair", {"exchange"}),
        ("coop", "self_refine", {"policies"}),
    ],
)
def test_a_method_differs_from_its_neighbour_in_what_defines_it_alone(first, second, fields):
    assert differing(first, second) == fields


def test_the_configs_of_coop_and_adv_differ_in_the_name_of_the_method_alone():
    coop, adv = (load_config(f"configs/{key}.py").to_dict() for key in ("coop", "adv"))
    assert (coop.pop("methods"), adv.pop("methods")) == (("coop",), ("adv",))
    assert coop == adv


@pytest.mark.parametrize("key", TWELVE)
def test_every_row_has_a_config_and_makes_the_same_number_of_rollouts(key):
    config = load_config(f"configs/{key}.py")
    assert config.methods == (key,)
    method = METHODS[METHODS[key].trained_as or key]
    if method.game is None:
        return
    made = setup.make_game(config, METHODS[key].trained_as or key)
    streams = 2 if made.challenge else 1
    assert made.draft_group * streams == 16  # 2K


def test_ways_to_answer_and_which_of_them_may_count():
    ways = {key: METHODS[key].ways for key in METHODS}
    assert ways["zero_shot"] == {"one pass": (None,)}
    assert ways["moa"] == {"two passes": (None, None)}
    assert ways["grpo_cascade"] == {"one pass": (0,), "two passes": (0, 0)} == ways["self_refine"]
    cascade = {"A alone": (0,), "B alone": (1,), "A then B": (0, 1), "B then A": (1, 0)}
    assert ways["adv"] == cascade == ways["fixed_roles"]
    assert set(METHODS["adv"].results) == {"A then B", "B then A"}
    # no exchange was trained: judged in one pass, by either policy
    assert set(METHODS["shared_opponent"].results) == {"A alone", "B alone"} == set(ways["hidden_drafts"])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("data", ["math", "code"])
def test_pieces_compose(model, data):
    plain, config = load_config("configs/margin.py"), load_config(f"configs/margin.py:{model},{data}")
    assert config.task == data and config.methods == ("margin",)
    assert (config.base == "tiny") == (model == "tiny")
    assert config.game.to_dict() == plain.game.to_dict()


def test_an_unknown_piece_is_named():
    from agon_jax.config import ConfigError

    with pytest.raises(ConfigError, match=r"unknown piece 'qwen9'.*qwen3_0.6b"):
        load_config("configs/adv.py:qwen9")
