"""What people see of a matrix: a board on a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from agon_jax.display import Display

UNITS = [("GRPO", (0, 1), True), ("Agon", (0, 1), False)]


@pytest.mark.parametrize(
    "state, rates, shown",
    [("waiting", [], "waiting"), ("running", [], "running"), ("done", [0.5, 0.61], "50.0 61.0")],
)
def test_the_board_shows_every_unit_and_its_rates(state, rates, shown):
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=True, width=100)) as display:
        display.board(UNITS)
        display.on_board(1, state, rates)
    assert "done earlier" in out.getvalue() and shown in out.getvalue()


def test_lines_where_there_is_no_terminal():
    out = io.StringIO()
    with Display(Console(file=out, width=100)) as display:
        display.board(UNITS)
        display.on_board(1, "running")
        display.on_board(1, "done", [0.5, 0.61])
    assert out.getvalue() == "Agon: seed 0: 50.0 %, seed 1: 61.0 % (2 of 2 units done)\n"
