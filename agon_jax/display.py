"""What a person sees while a run works: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

_SHOWN = (
    ("reward", "reward", "{:.2f}"),
    ("draft_pass_rate", "drafts right", "{:.0%}"),
    ("challenge_pass_rate", "challenges right", "{:.0%}"),
    ("conversion_rate", "converted", "{:.0%}"),
    ("draft_well_formed", "well formed", "{:.0%}"),
    ("draft_length", "draft tokens", "{:.0f}"),
    ("challenge_length", "challenge tokens", "{:.0f}"),
    ("tokens_per_second", "tokens/s", "{:,.0f}"),
)


class Display:
    """Use as a context manager around the whole run."""

    def __init__(self, console: Console, line_every: int = 10):
        self.console = console
        self._line_every = line_every
        self._progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._live = (
            Live(self._progress, console=console, refresh_per_second=4) if console.is_terminal else None
        )
        self._task, self._all, self._name = None, None, ""
        self._started, self._made, self._left = 0.0, 0, 0  # since begin(); steps left of the plan
        self._judge, self._judging, self._judging_line = None, None, 0.0
        self._units: list[dict] = []  # of the board

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text)

    def board(self, units: Sequence[tuple[str, Sequence[int], bool]]) -> None:
        """All units of work: (method, seeds, whether it is finished already)."""
        state = lambda done: "done earlier" if done else "waiting"
        self._units = [dict(name=n, seeds=s, state=state(done), rates=[]) for n, s, done in units]
        self._refresh()

    def on_board(self, number: int, state: str, rates: Sequence[float] = ()) -> None:
        """A unit's new state and, at its end, the pass rates of its members."""
        self._units[number] |= dict(state=state, rates=list(rates))
        unit = self._units[number]
        if rates:
            shown = ", ".join(f"seed {s}: {100 * r:.1f} %" for s, r in zip(unit["seeds"], rates, strict=True))
            finished = sum(unit["state"].startswith("done") for unit in self._units)
            self.say(f"{unit['name']}: {shown} ({finished} of {len(self._units)} units done)")
        self._refresh()

    def _refresh(self, *extra: Table) -> None:
        if not self._live:
            return
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in ("method", "seeds", "state", "pass@1 %"):
            table.add_column(name)
        for unit in self._units:
            seeds = ", ".join(map(str, unit["seeds"]))
            rates = " ".join(f"{100 * rate:.1f}" for rate in unit["rates"])
            style = "bold" if unit["state"] == "running" else "dim" if unit["state"] == "waiting" else ""
            table.add_row(unit["name"], seeds, unit["state"], rates, style=style)
        board = [table] if self._units else []
        self._live.update(Group(*board, self._progress, *extra))

    def plan(self, total: int) -> None:
        """Steps of all pieces of work that are not finished yet."""
        self._all, self._left = self._progress.add_task("all", total=total), total

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """A new piece of work, of which `done` is already there."""
        if done:
            self.say(f"{name}: resuming at {done} of {total}")
        if self._all is None:
            self.plan(total)
        self._task = self._progress.add_task(name, total=total, completed=done)
        self._progress.advance(self._all, done)
        self._left -= done
        self._name, self._started, self._made = name, time.perf_counter(), 0

    def judging(self, done: int, total: int) -> None:
        """Answers judged so far of a batch; shown while a batch takes longer than two seconds."""
        now = time.perf_counter()
        if done <= 1 or self._judging is None:
            self._judging, self._judging_line = now, now
        if self._live:
            if self._judge is None and now - self._judging > 2:
                self._judge = self._progress.add_task("judging answers", total=total)
            if self._judge is not None:
                self._progress.update(self._judge, completed=done, total=total)
        elif now - self._judging_line > 30:
            self.say(f"judging answers: {done} of {total}")
            self._judging_line = now
        if done == total and self._judge is not None:
            self._progress.remove_task(self._judge)
            self._judge = None

    def step(self, done: int, metrics: dict[str, float]) -> None:
        """Progress of the current piece, with its newest figures."""
        total = next(task.total for task in self._progress.tasks if task.id == self._task)
        self._progress.update(self._task, completed=done)
        self._progress.advance(self._all)
        self._made, self._left = self._made + 1, self._left - 1
        shown = [(label, form.format(metrics[key])) for key, label, form in _SHOWN if key in metrics]
        if self._live:
            table = Table.grid(padding=(0, 2))
            for _ in shown:
                table.add_column(justify="right")
            table.add_row(*(f"[dim]{label}[/dim]" for label, _ in shown))
            table.add_row(*(value for _, value in shown))
            self._refresh(table)
        elif done % self._line_every == 0 or done == total:
            left = self._left * (time.perf_counter() - self._started) / self._made
            figures = ", ".join(f"{label} {value}" for label, value in shown)
            self.say(f"{self._name} {done}/{total:.0f}, {left:.0f} s of training left: {figures}")
