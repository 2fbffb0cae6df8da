"""Synthetic replies to family_relationships of reasoning_gym: what the base of `gym_base` is made of.

    What relation is Mary to Zoe?                      Mary is the mother of Liam, who is Zoe's father
    <think> Mary spouse John no Mary parent Liam parent Zoe ok </think>
    Mary parent Liam parent Zoe <answer> grandmother </answer>

A reply walks through the story from the first person to the second, judges its walk ok or no, walks once
more after a no, writes its last walk up and names the relation that the walk means. So the write-up holds
no word of the answer, and a reader can check every hop of it against the story.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Sequence

from agon_jax.tasks.reasoning_gym import ReasoningGymTask
from agon_jax.text.prompts import TERSE, Message
from agon_jax.types import Problem

DATASET = "family_relationships"
CHILD, PARENT, SPOUSE = HOPS = ("child", "parent", "spouse")  # "Zoe child Liam": Zoe is a child of Liam
OK, NO = "ok", "no"
READ = "read"  # the phase of `Reader`; those of `Writer` are in PHASES
# (hops from the first person to the second) -> (the word for a woman, for a man). These are all relations
# in families of up to eight.
RELATIONS: dict[tuple[str, ...], tuple[str, str]] = {
    (PARENT,): ("mother", "father"),
    (CHILD,): ("daughter", "son"),
    (SPOUSE,): ("wife", "husband"),
    (CHILD, PARENT): ("sister", "brother"),
    (PARENT, PARENT): ("grandmother", "grandfather"),
    (SPOUSE, CHILD): ("mother-in-law", "father-in-law"),
}
_OF_THE_SECOND = (SPOUSE, CHILD)  # the library takes the gender of the second person here, else the first's

Walk = list[str]  # person, hop, person, ..., person

_COUPLE = re.compile(r"(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]+)\.)?")
_ASKED = re.compile(r"is (\w+) (?:related )?to (\w+)\?")


@dataclasses.dataclass(frozen=True)
class Story:
    """What the text of a problem says.

    Attributes:
      hops: (person, hop) -> who that leads to, in the order of the story.
      first, second: "What is `first` to `second`?"
    """

    hops: dict[tuple[str, str], tuple[str, ...]]
    first: str
    second: str

    def solutions(self) -> list[Walk]:
        """Every walk of a relation from the first person to the second."""
        walks = [walk for hops in RELATIONS for walk in self.walks(hops)]
        return [walk for walk in walks if self.sound(walk)]

    def walks(self, hops: Sequence[str]) -> list[Walk]:
        """Every walk of these hops from the first person, wherever it ends; nobody comes twice."""
        walks = [[self.first]]
        for hop in hops:
            walks = [
                [*walk, hop, person]
                for walk in walks
                for person in self.hops.get((walk[-1], hop), ())
                if person not in walk
            ]
        return walks

    def sound(self, walk: Walk) -> bool:
        """It leads from the first person to the second, and the story holds every hop."""
        hops = zip(walk[::2], walk[1::2], walk[2::2], strict=False)
        holds = all(person in self.hops.get((before, hop), ()) for before, hop, person in hops)
        return holds and walk[0] == self.first and walk[-1] == self.second


def read(text: str) -> Story:
    """The story and the question of a problem.

    Raises:
      ValueError: the text is not one of family_relationships.
    """
    asked = _ASKED.search(text)
    couples = _COUPLE.findall(text)
    if asked is None or not couples:
        raise ValueError(f"not a problem of {DATASET}: {text[:80]!r}")
    hops: dict[tuple[str, str], tuple[str, ...]] = {}
    for one, other, named in couples:
        children = tuple(re.findall(r"\w+", named.replace(" and ", " ")))
        for person, partner in ((one, other), (other, one)):
            hops[person, SPOUSE] = (partner,)
            hops[person, PARENT] = children
        hops |= {(child, CHILD): (one, other) for child in children}
    return Story(hops, *asked.groups())


def relation(walk: Walk, women: frozenset[str]) -> str:
    """The word for what a walk means, as the library's scorer wants it."""
    hops = tuple(walk[1::2])
    decides = walk[-1] if hops == _OF_THE_SECOND else walk[0]
    return RELATIONS[hops][decides not in women]


@dataclasses.dataclass(frozen=True)
class Phase:
    """How well the writer of the traces reasons (all probabilities).

    Attributes:
      solve: a walk is a solution; else it is one of any relation that the story allows.
      repair: as `solve`, for a walk after a no.
      wish: the last person of a walk that ends elsewhere is written as the second person of the question.
      trust: such a walk is judged ok.
      ignore, copy: a challenger ignores the attempt, or copies it unread; otherwise it checks it, and
        walks itself after a no.
      again: a second walk follows a no.
      slip: the answer is a word for any relation.
    """

    solve: float
    repair: float
    wish: float
    trust: float
    ignore: float
    copy: float
    again: float
    slip: float


PHASES = {
    "skill": Phase(0.6, 0.85, 0.05, 0.1, 0.3, 0.1, 0.95, 0.02),
    "noise": Phase(0.1, 0.1, 0.4, 0.7, 0.5, 0.25, 0.2, 0.2),
}
DRAFTER = PHASES["noise"]  # writes the attempts that challengers are shown: so the base will draft


@dataclasses.dataclass(frozen=True)
class Reader:
    """Writes replies that wander through the story: nothing but hops, so that reading is learnt first."""

    problems: Sequence[Problem]
    hops: int = 12

    def example(self, rng: random.Random, challenger: bool) -> tuple[list[Message], str]:
        """(messages of the prompt, reply); a challenger is shown another way through the story."""
        problem = rng.choice(self.problems)
        story = read(problem.text)
        reply = " ".join(["<think>", *self._wander(story, rng, self.hops)])
        if not challenger:
            return TERSE.draft_messages(problem.text), reply
        shown = " ".join(self._wander(story, rng, 2))
        return TERSE.challenge_messages(problem.text, shown), reply

    def _wander(self, story: Story, rng: random.Random, hops: int) -> Walk:
        walk = [story.first]
        for _ in range(hops):
            hop = rng.choice([hop for hop in HOPS if story.hops.get((walk[-1], hop))])
            walk += [hop, rng.choice(story.hops[walk[-1], hop])]
        return walk


@dataclasses.dataclass(frozen=True)
class Writer:
    """Writes replies of one phase.

    Attributes:
      problems: that it draws from.
      women: the names of women; all others are men's.
      drafter: writes the attempts shown to challengers.
    """

    phase: Phase
    problems: Sequence[Problem]
    women: frozenset[str]
    drafter: Phase = DRAFTER

    def example(self, rng: random.Random, challenger: bool) -> tuple[list[Message], str]:
        """(messages of the prompt, reply) of one drafter or challenger."""
        problem = rng.choice(self.problems)
        story = read(problem.text)
        if not challenger:
            return TERSE.draft_messages(problem.text), self._reply(*self._search(story, rng), rng)
        _, draft = dataclasses.replace(self, phase=self.drafter)._search(story, rng)
        shown = ReasoningGymTask().hide(problem, " ".join(draft), relation(draft, self.women))
        reply = self._reply(*self._answer(story, draft, rng), rng)
        return TERSE.challenge_messages(problem.text, shown), reply

    def _answer(self, story: Story, draft: Walk, rng: random.Random) -> tuple[list[str], Walk]:
        """(thoughts, committed walk) of a challenger."""
        phase, mood = self.phase, rng.random()
        if mood < phase.ignore:
            return self._search(story, rng)
        if mood < phase.ignore + phase.copy:
            return [*draft, OK], draft
        if story.sound(draft):
            return [*draft, OK], draft
        walk = self._walk(story, rng, phase.repair)
        return [*draft, NO, *walk, self._verdict(story, walk, rng)], walk

    def _search(self, story: Story, rng: random.Random) -> tuple[list[str], Walk]:
        """(thoughts, committed walk): one walk, and a second after a no."""
        phase = self.phase
        walk = self._walk(story, rng, phase.solve)
        thoughts = [*walk, self._verdict(story, walk, rng)]
        if thoughts[-1] == NO and rng.random() < phase.again:
            walk = self._walk(story, rng, phase.repair)
            thoughts += [*walk, self._verdict(story, walk, rng)]
        return thoughts, walk

    def _walk(self, story: Story, rng: random.Random, solve: float) -> Walk:
        if rng.random() < solve:
            return rng.choice(story.solutions())
        walk = rng.choice(rng.choice([walks for hops in RELATIONS if (walks := story.walks(hops))]))
        if walk[-1] != story.second and story.second not in walk and rng.random() < self.phase.wish:
            return [*walk[:-1], story.second]
        return walk

    def _verdict(self, story: Story, walk: Walk, rng: random.Random) -> str:
        wished = walk[-1] == story.second and rng.random() < self.phase.trust
        return OK if wished or story.sound(walk) else NO

    def _reply(self, thoughts: list[str], walk: Walk, rng: random.Random) -> str:
        answer = relation(walk, self.women)
        if rng.random() < self.phase.slip:
            answer = rng.choice(rng.choice(list(RELATIONS.values())))
        return " ".join(["<think>", *thoughts, "</think>", *walk, "<answer>", answer, "</answer>"])


def answer_of(problem: Problem) -> str:
    """The answer that the library holds for a problem."""
    return json.loads(problem.reference)["entry"]["answer"]
