"""Where the answer of a reply is: an answer block, a box, or an "Answer:" line."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BARE_BOXED = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?![\w.]*\w)|[a-zA-Z](?!\w)")
_TAG = re.compile(r"<(/?)(think|answer)>")
_LINE = re.compile(
    r"\b(?:answer|result)(?:\*\*|__)?[ \t]*(?:\bis\b[ \t]*:?|:|=)(?:\*\*|__)?[ \t]*(?:\n[ \t]*)?([^\n]+)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z\\(\[\"']|\s*$)")
# What may stand between two boxes that are one answer together: "\boxed{1} and \boxed{2}".
_JOINT = re.compile(
    r"(?:\s|[$,;()]|\\[,;()\[\]]|\\q?quad|\\text|[{}]|[a-zA-Z](?:_\w)?\s*=|\b(?:or|and|also|possibly|maybe|perhaps"
    r"|alternatively|either|else|even)\b)*",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(r"[^.!?\n]{0,40}\bor\b[^.!?\n]{0,40}", re.IGNORECASE)
_CONNECTOR = re.compile(r"[,;]|\bor\b|\band\b|\balso\b|maybe|perhaps|alternatively|possibly", re.IGNORECASE)


def boxes(text: str) -> list[tuple[int, int, str]]:
    """(start, end, content) of each well-formed outermost \\boxed or \\fbox, in order. Linear time."""
    starts = list(_BOX.finditer(text))
    if not starts:
        return []
    closing = _closing_braces(text)
    found, after = [], 0
    for match in starts:
        if match.start() < after:
            continue
        at = match.end()
        if text.startswith("{", at):
            if at in closing:
                after = closing[at] + 1
                found.append((match.start(), after, text[at + 1 : after - 1]))
        elif at > match.start() and text[at - 1].isspace() and (bare := _BARE_BOXED.match(text, at)):
            # TeX boxes one token; only numerals and single letters that end there are taken so.
            if bare.group().isalpha() and text[bare.end() : bare.end() + 1] not in ("", "$", ".", "\n"):
                continue
            after = bare.end()
            found.append((match.start(), after, bare.group()))
    return found


def _closing_braces(text: str) -> dict[int, int]:
    closing, opened, at = {}, [], 0
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        at = match.start()
        if match.group() == "{":
            opened.append(at)
        elif match.group() == "}" and opened:
            closing[opened.pop()] = at
    return closing


def boxed(text: str) -> str | None:
    """Content of the last box. Boxes joined by "or", "and" or commas are one answer: all of them."""
    found = boxes(text)
    if not found:
        return None
    parts = [found[-1][2]]
    for (_, end, content), (start, _, _) in zip(found[-2::-1], found[:0:-1], strict=True):
        between = text[end:start]
        joined = len(between) <= 80 and _CONNECTOR.search(between) and _JOINT.fullmatch(between)
        if not joined and not _ALTERNATIVE.fullmatch(between):
            break
        parts.append(content)
    if len(set(parts)) > 1:
        return ", ".join(reversed(parts))
    return parts[0]


def extract(completion: str) -> str | None:
    """The answer of a reply, None when it gives none.

    Reasoning does not count: only what follows the last `</think>`, and nothing of a reply whose
    reasoning never ended. Then the last `<answer>` block that is directly closed, else the last box,
    else the last "Answer: x" or "The answer is x" line, else the whole text.
    """
    tags = [(m.group(1) + m.group(2), m.start(), m.end()) for m in _TAG.finditer(completion)]
    reply = 0
    for i, (name, _, end) in enumerate(tags):
        if name == "/think":
            reply = end
        elif name == "think" and all(later[0] != "/think" for later in tags[i + 1 :]):
            # Reopened reasoning hides what follows it; reasoning that opens the reply, all of it.
            completion = completion[: tags[i][1]] if reply or completion[: tags[i][1]].strip() else ""
            break
    tags = [tag for tag in tags if reply <= tag[1] < len(completion) and "answer" in tag[0]]
    for (first, _, start), (second, end, _) in zip(tags[-2::-1], tags[:0:-1], strict=True):
        if (first, second) == ("answer", "/answer"):
            return completion[start:end].strip()
    text = completion[reply:]
    if (content := boxed(text)) is not None:
        return content.strip()
    lines = _LINE.findall(text)
    if lines:
        line = lines[-1]
        end = _SENTENCE_END.search(line)
        return (line[: end.start()] if end else line).strip()
    return text.strip() or None
