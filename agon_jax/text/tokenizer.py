"""A Hugging Face tokenizer with its chat template: messages -> ids, ids -> text."""

from __future__ import annotations

import json
import os
import pathlib
import re

import numpy as np

from agon_jax.text.prompts import Message
from agon_jax.types import Prompts

# The fast tokenizers fork-warn once worker processes exist; we tokenize from one thread.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# transformers is used for tokenizers alone: that PyTorch is missing is no news.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")


class Tokenizer:
    """AutoTokenizer plus what sampling needs of it.

    Control tokens are the special ones (`<|im_end|>`); only the chat template writes them. Text that
    spells one is encoded as text. Added tokens that are not special (`<think>`) are ordinary ones.

    Args:
      folder: of the model; its tokenizer must have a chat template.
      embedding_rows: config.json's `vocab_size`; None skips the checks against it.

    Attributes:
      stop_ids: every id that ends a turn: generation_config.json's eos ids if it names any, else
        config.json's, else the tokenizer's own.
      pad_id: fills padded slots; masks, not this id, say what is padding.
      num_ids: one more than the largest id that has an embedding.

    Raises:
      ValueError: no usable tokenizer, chat template or eos id in the folder; a damaged file; a
        tokenizer with ordinary words beyond the embedding.
    """

    def __init__(self, folder: str | pathlib.Path, embedding_rows: int | None = None):
        from transformers import AutoTokenizer

        folder = pathlib.Path(folder)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise ValueError(f"{folder}: no usable tokenizer ({first_line})") from None
        tokenizer = self._tokenizer
        if not tokenizer.chat_template:
            raise ValueError(f"{folder}: the tokenizer has no chat template; use an instruct model")
        self.stop_ids = (
            _eos_ids(folder / "generation_config.json")  # the order of transformers' generate()
            or _eos_ids(folder / "config.json")
            or tuple(i for i in [tokenizer.eos_token_id] if i is not None)
        )
        if not self.stop_ids:
            raise ValueError(
                f"{folder}: neither generation_config.json, config.json nor the tokenizer names an eos id"
            )
        self._embedding_rows = embedding_rows
        self.num_ids = _num_ids(folder, tokenizer, embedding_rows)
        pad = tokenizer.pad_token_id
        self.pad_id = self.stop_ids[0] if pad is None or pad >= self.num_ids else pad
        # What the family puts in front of every text: its BOS or nothing.
        self._bos = [i for i in tokenizer.encode("a")[:1] if i == tokenizer.bos_token_id]
        added = tokenizer.added_tokens_decoder.values()
        self._special = {*tokenizer.all_special_tokens, *(str(t) for t in added if t.special)} - {""}
        starts = "|".join(map(re.escape, sorted(self._special))) or "(?!)"  # (?!) matches nothing
        self._special_start = re.compile(f"(?={starts}).", re.DOTALL)

    def render(self, messages: list[Message], think: bool = True) -> tuple[list[int], str]:
        """Messages -> (ids ending with the generation prompt, prefill).

        The ids begin with exactly one BOS if the family has one. The prefill is what the template
        already wrote of the reply from `<think>` on: it counts as part of the completion when the
        format is judged. `think` goes to templates that know the tag `<think>`; a thinking switch
        with other markers stays off, since the prompt tells the format.
        """
        template = self._tokenizer.get_chat_template()
        marks = _marks("".join([template, *self._special, *(m["content"] for m in messages)]))
        messages = [m | {"content": self._cut(m["content"], marks)} for m in messages]

        def write(messages: list[Message], reply: bool) -> str:
            return self._tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=reply,
                enable_thinking=think and "<think>" in template,
            )

        text, asked = write(messages, True), write(messages, False)
        if text.startswith(asked):
            header = text[len(asked) :]
        else:  # the template ends a finished conversation in its own way: a mark shows where ours ends
            probe = [*messages[:-1], messages[-1] | {"content": marks[0]}]
            header = write(probe, True).rpartition(marks[0])[2]
        prefill = header[header.index("<think>") :] if "<think>" in header else ""
        ids = self._ids(text, marks)
        return ids if ids[:1] == self._bos else self._bos + ids, prefill

    def encode(self, text: str) -> list[int]:
        """Plain text -> ids, nothing added, no control token among them."""
        marks = _marks("".join([text, *self._special]))
        return self._ids(self._cut(text, marks), marks)

    def _cut(self, text: str, marks: tuple[str, str]) -> str:
        """A mark behind the first character of every special token that the text spells.

        Every occurrence is cut, overlapping and nested ones too, so no piece holds one. A special
        token of one character cannot be cut: it gets a piece, flagged by the other mark.
        """
        cut, alone = marks
        mark = lambda m: f"{cut}{alone}{m[0]}{cut}" if m[0] in self._special else m[0] + cut
        return self._special_start.sub(mark, text)

    def _ids(self, marked: str, marks: tuple[str, str]) -> list[int]:
        """Ids of the pieces between the cuts. Text without a cut is one piece: encoded as it is."""
        cut, alone = marks
        ids = []
        for piece in marked.split(cut):
            ids += self._tokenizer.encode(
                piece.removeprefix(alone),
                add_special_tokens=False,
                split_special_tokens=piece.startswith(alone),
            )
        return ids

    def decode(self, ids: np.ndarray, mask: np.ndarray) -> list[str]:
        """Sampled ids [B, C] -> texts, without the stop id that ended each row."""
        rows = []
        for row, length in zip(ids.tolist(), mask.sum(axis=1).tolist(), strict=True):
            kept = row[:length]
            if kept and kept[-1] in self.stop_ids:
                kept = kept[:-1]
            rows.append(kept)
        return self._tokenizer.batch_decode(rows, skip_special_tokens=False)

    def pad(self, rows: list[list[int]], width: int) -> Prompts:
        """Rows of ids -> left-padded Prompts [len(rows), width].

        Raises:
          ValueError: a row is longer (it is never cut), or holds an id without an embedding (JAX
            would silently take the nearest row).
        """
        longest = max(map(len, rows))
        if longest > width:
            raise ValueError(f"a prompt of {longest} tokens does not fit the cap of {width}")
        tokens = np.full((len(rows), width), self.pad_id, np.int32)
        mask = np.zeros((len(rows), width), bool)
        for i, row in enumerate(rows):
            tokens[i, width - len(row) :] = row
            mask[i, width - len(row) :] = True
        ids = tokens[mask]
        if (lost := ids[(ids < 0) | (ids >= (self._embedding_rows or np.inf))]).size:
            raise ValueError(f"a prompt holds the id {lost[0]}, for which the embedding has no row")
        return Prompts(tokens=tokens, mask=mask)


def _eos_ids(path: pathlib.Path) -> tuple[int, ...]:
    """The eos ids that a JSON file names, each once; none without the file."""
    if not path.is_file():
        return ()
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        named = config.get("eos_token_id")
        if named is None:
            named = (config.get("text_config") or {}).get("eos_token_id")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({error})") from None
    ids = [i for i in (named if isinstance(named, list) else [named]) if i is not None]
    if not all(isinstance(i, int) for i in ids):
        raise ValueError(f"{path}: eos_token_id must be one id or a list of ids, not {named!r}")
    return tuple(dict.fromkeys(ids))


def _num_ids(folder: pathlib.Path, tokenizer, embedding_rows: int | None) -> int:
    """One more than the largest id (vocabularies have gaps), at most the embedding's rows.

    Gemma 3's small text models share the tokenizer of the large ones: an added image token has no row.
    """
    ids = tokenizer.get_vocab().values()
    if embedding_rows is None:
        return max(ids) + 1
    added = tokenizer.added_tokens_decoder
    lost = [i for i in ids if i >= embedding_rows and i not in added]
    if lost:
        raise ValueError(
            f"{folder}: the tokenizer has ordinary ids up to {max(lost)}, but config.json gives the "
            f"embedding {embedding_rows} rows; tokenizer and config.json do not belong together"
        )
    return min(max(ids) + 1, embedding_rows)


def _marks(text: str) -> tuple[str, str]:
    """Two private-use characters that the text does not hold."""
    unused = (c for c in map(chr, range(0xF0000, 0x110000)) if c not in text)
    return next(unused), next(unused)
