"""Reading a completion: private reasoning, summary, answer, and whether it is well formed."""

from __future__ import annotations

import dataclasses
import itertools
import re

_TAG = re.compile(r"<think>|</think>|<answer>|</answer>")


@dataclasses.dataclass(frozen=True)
class Completion:
    """A parsed completion.

    Attributes:
      summary: what was written after the private reasoning and before the answer block; "" when
        the reasoning never ended. The only part a rival may ever see.
      answer: text of the last answer block outside the reasoning, None without one.
      well_formed: exactly one `<think>...</think>` at the start, followed by exactly one
        `<answer>...</answer>` at the end. Answer tags mentioned inside the reasoning are text.
      reasoning: what stands before the summary; never shown to a rival.
    """

    summary: str
    answer: str | None
    well_formed: bool
    reasoning: str = ""


def parse(text: str, finished: bool, prefill: str = "") -> Completion:
    """Parse a completion.

    Args:
      text: the decoded completion, without its stop token.
      finished: False when it was cut at the cap: then it is malformed and has no answer,
        whatever it holds.
      prefill: what the chat template already wrote of the reply (`<think>`, or an empty
        reasoning block); judged together with the text.
    """
    full = prefill + text
    tags = [(m.group(), m.start(), m.end()) for m in _TAG.finditer(full)]
    opened = [t for t in tags if t[0] == "<think>"]
    closed = [t for t in tags if t[0] == "</think>"]
    reply_start = closed[-1][2] if closed else len(full) if opened else 0
    reply_tags = [t for t in tags if t[1] >= reply_start]
    # Reasoning that was opened again and never closed is private too.
    reopened = next((i for i, t in enumerate(reply_tags) if t[0] == "<think>"), len(reply_tags))

    summary_end = next((t[1] for t in reply_tags if t[0] in ("<answer>", "<think>")), len(full))
    summary = _TAG.sub("", full[reply_start:summary_end]).strip() if closed else ""
    reasoning = _TAG.sub("", full[:reply_start]).strip()
    if not finished:
        return Completion(summary, answer=None, well_formed=False, reasoning=reasoning)

    well_formed = (
        len(opened) == len(closed) == 1
        and opened[0][1] < closed[0][1]
        and not full[: opened[0][1]].strip()
        and [t[0] for t in reply_tags] == ["<answer>", "</answer>"]
        and not full[reply_tags[-1][2] :].strip()
    )
    answer = _last_answer(full, reply_tags[:reopened])
    return Completion(summary, answer, well_formed, reasoning)


def _last_answer(full: str, tags: list[tuple[str, int, int]]) -> str | None:
    """Text of the last `<answer>` that is directly closed."""
    for opening, closing in reversed(list(itertools.pairwise(tags))):
        if opening[0] == "<answer>" and closing[0] == "</answer>":
            return full[opening[2] : closing[1]].strip()
    return None
