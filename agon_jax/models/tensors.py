"""The safetensors of a folder, one file or a sharded index. Every fault names file and tensor."""

from __future__ import annotations

import json
import pathlib
from typing import NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from agon_jax.models.names import PREFIXES

_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


class _Header(NamedTuple):
    """Of one file: entries by tensor, and where the tensors' bytes begin."""

    entries: dict[str, dict]
    begin: int


class Tensors:
    """Read access to all tensors of a folder, as views of the mapped files: nothing is copied.

    One file is mapped at a time, since a mapped file may count as this process's memory.

    Raises:
      ValueError: (from every method) what is wrong, with the file and the tensor.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._headers: dict[str, _Header] = {}
        self._mapped: tuple[str, np.memmap] | None = None
        self._where = self._index()

    def _index(self) -> dict[str, str]:
        """Tensor name -> file. The index wins over a stray model.safetensors beside the shards."""
        index, single = self._folder / "model.safetensors.index.json", "model.safetensors"
        if index.is_file():
            try:
                where = dict(json.loads(index.read_text())["weight_map"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{index} is damaged: no weight_map in it ({error!r})") from None
            for name, file in where.items():  # before anything is read: a late error wastes minutes
                if not isinstance(file, str) or pathlib.PurePath(file).name != file:
                    raise ValueError(f"{index}: {file!r}, said to hold {name}, is not a file name")
                if not (self._folder / file).is_file():
                    raise ValueError(f"{self._folder / file} is missing, but the index names it for {name}")
            return where
        if (self._folder / single).is_file():
            return dict.fromkeys(self._header(single).entries, single)
        pickled = sorted(p.name for p in self._folder.glob("*.bin")) + sorted(
            p.name for p in self._folder.glob("*.pt*")
        )
        hint = f"; {pickled[0]} is a pickle and pickles are never loaded" if pickled else ""
        raise ValueError(f"{self._folder} has no model.safetensors{hint}")

    def _header(self, file: str) -> _Header:
        if file not in self._headers:
            path = self._folder / file
            try:
                with safe_open(str(path), framework="np"):  # the library checks the header and the size
                    pass
                with path.open("rb") as opened:
                    length = int.from_bytes(opened.read(8), "little")
                    entries = json.loads(opened.read(length))
            except (SafetensorError, OSError, ValueError) as error:
                raise ValueError(f"{path} is damaged or cut short: {error}") from None
            entries.pop("__metadata__", None)
            self._headers[file] = _Header(entries, 8 + length)
        return self._headers[file]

    def _body(self, file: str) -> np.memmap:
        if self._mapped is None or self._mapped[0] != file:
            self.close()
            begin = self._header(file).begin
            self._mapped = file, np.memmap(self._folder / file, np.uint8, "r", offset=begin)
        return self._mapped[1]

    def close(self) -> None:
        """Let go of the mapped file; views of it stay valid."""
        self._mapped = None

    def names(self) -> set[str]:
        """All tensors of the folder."""
        return set(self._where)

    def prefix(self) -> str:
        """Which of PREFIXES the folder uses."""
        for prefix in PREFIXES:
            if f"{prefix}embed_tokens.weight" in self._where:
                return prefix
        raise ValueError(f"{self._folder}: tensor model.embed_tokens.weight is missing")

    def file_of(self, name: str) -> str:
        """The file that holds a tensor."""
        if name not in self._where:
            raise ValueError(f"{self._folder}: tensor {name} is missing")
        return self._where[name]

    def check_files(self) -> None:
        """Assert that every file is whole."""
        for file in set(self._where.values()):
            self._header(file)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Assert that a tensor is there, of this shape, and not quantized; no weight is read."""
        entry = self._entry(name)
        where = self._folder / self._where[name]
        if tuple(entry["shape"]) != shape:
            raise ValueError(
                f"{where}: tensor {name} has shape {entry['shape']}, config.json asks for {list(shape)}"
            )
        if entry["dtype"] not in _DTYPES:
            raise ValueError(
                f"{where}: tensor {name} has dtype {entry['dtype']}; quantized weights are not "
                f"supported (only {', '.join(_DTYPES)})"
            )

    def view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A read-only view of one tensor that passed `check`."""
        self.check(name, shape)
        entry = self._entry(name)
        begin, end = entry["data_offsets"]
        return self._body(self._where[name])[begin:end].view(_DTYPES[entry["dtype"]]).reshape(shape)

    def raw(self, name: str) -> np.ndarray:
        """A copy of one tensor, whatever its shape and dtype."""
        dtype, path = self._entry(name)["dtype"], self._folder / self._where[name]
        with safe_open(str(path), framework="np") as file:
            try:
                return file.get_tensor(name)
            except (AttributeError, TypeError, SafetensorError) as error:
                raise ValueError(f"{path}: tensor {name} has dtype {dtype}: {error}") from None

    def _entry(self, name: str) -> dict:
        file = self.file_of(name)
        entries = self._header(file).entries
        if name not in entries:
            raise ValueError(
                f"{self._folder / file}: tensor {name} is missing, but the index says it is there"
            )
        return entries[name]
