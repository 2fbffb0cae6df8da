"""A Hugging Face tokenizer with its chat template: messages -> ids, ids -> text."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np

from agon_jax.text.prompts import Message
from agon_jax.types import Prompts

# The fast tokenizers fork-warn once worker processes exist; we tokenize from one thread.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# transformers is used for tokenizers alone: that PyTorch is missing is no news.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")


class Tokenizer:
    """AutoTokenizer plus what sampling needs of it.

    Attributes:
      stop_ids: every id that ends a turn: all of generation_config.json's eos ids and the
        tokenizer's own.
      pad_id: fills padded slots; masks, not this id, say what is padding.
      num_ids: one more than the largest id the tokenizer can produce.
    """

    def __init__(self, folder: str | pathlib.Path):
        from transformers import AutoTokenizer

        folder = pathlib.Path(folder)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise ValueError(f"{folder}: no usable tokenizer ({first_line})") from None
        if not self._tokenizer.chat_template:
            raise ValueError(f"{folder}: the tokenizer has no chat template; use an instruct model")
        self.stop_ids = _stop_ids(folder, self._tokenizer.eos_token_id)
        if not self.stop_ids:
            raise ValueError(f"{folder}: neither generation_config.json nor the tokenizer names an eos id")
        pad = self._tokenizer.pad_token_id
        self.pad_id = self.stop_ids[0] if pad is None else pad
        self.num_ids = max(self._tokenizer.get_vocab().values()) + 1  # some vocabularies have gaps

    def render(self, messages: list[Message], think: bool = True) -> tuple[list[int], str]:
        """Messages -> (ids ending with the generation prompt, prefill).

        The prefill is what the template already wrote of the reply from `<think>` on: it counts
        as part of the completion when the format is judged.
        """
        options = dict(tokenize=False, enable_thinking=think)
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, **options)
        asked = self._tokenizer.apply_chat_template(messages, add_generation_prompt=False, **options)
        header = text[len(asked) :] if text.startswith(asked) else ""
        prefill = header[header.index("<think>") :] if "<think>" in header else ""
        return self._tokenizer.encode(text, add_special_tokens=False), prefill

    def encode(self, text: str) -> list[int]:
        """Plain text -> ids, nothing added."""
        return self._tokenizer.encode(text, add_special_tokens=False)

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
        """Rows of ids -> left-padded Prompts of `width`; a longer row is an error, never cut."""
        longest = max(map(len, rows))
        if longest > width:
            raise ValueError(f"a prompt of {longest} tokens does not fit the cap of {width}")
        tokens = np.full((len(rows), width), self.pad_id, np.int32)
        mask = np.zeros((len(rows), width), bool)
        for i, row in enumerate(rows):
            tokens[i, width - len(row) :] = row
            mask[i, width - len(row) :] = True
        return Prompts(tokens=tokens, mask=mask)


def _stop_ids(folder: pathlib.Path, eos: int | None) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    configured = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
    ids = configured if isinstance(configured, list) else [configured]
    return tuple(dict.fromkeys(i for i in [*ids, eos] if i is not None))
