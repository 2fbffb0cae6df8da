"""The safetensors of a folder, one file or a sharded index. Every fault names file and tensor."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

_FLOATS = ("F32", "F16", "BF16", "F64")


class Tensors:
    """Read access to all tensors of a folder.

    One file is open at a time: a mapped file counts as memory while it is open.

    Raises:
      ValueError: (from every method) what is wrong, with the file and the tensor.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._file, self._handle = "", None
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
            return dict.fromkeys(self._open(single).keys(), single)
        pickled = sorted(p.name for p in self._folder.glob("*.bin")) + sorted(
            p.name for p in self._folder.glob("*.pt*")
        )
        hint = f"; {pickled[0]} is a pickle and pickles are never loaded" if pickled else ""
        raise ValueError(f"{self._folder} has no model.safetensors{hint}")

    def _open(self, file: str) -> Any:
        if file != self._file:
            self.close()
            path = self._folder / file
            try:
                self._handle, self._file = safe_open(str(path), framework="np"), file
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{path} is damaged or cut short: {error}") from None
        return self._handle

    def close(self) -> None:
        """Close the open file."""
        self._file, self._handle = "", None

    def names(self) -> set[str]:
        """All tensors of the folder."""
        return set(self._where)

    def file_of(self, name: str) -> str:
        """The file that holds a tensor: reading in its order opens every file once."""
        if name not in self._where:
            raise ValueError(f"{self._folder}: tensor {name} is missing")
        return self._where[name]

    def slice_of(self, name: str, shape: tuple[int, ...]) -> Any:
        """A lazy slice of one tensor; shape and dtype are asserted, no byte of it is read yet."""
        file = self.file_of(name)
        where = self._folder / file
        try:
            view = self._open(file).get_slice(name)
        except SafetensorError:
            raise ValueError(f"{where}: tensor {name} is missing, but the index says it is there") from None
        if tuple(view.get_shape()) != shape:
            raise ValueError(
                f"{where}: tensor {name} has shape {list(view.get_shape())}, "
                f"config.json asks for {list(shape)}"
            )
        if view.get_dtype() not in _FLOATS:
            raise ValueError(
                f"{where}: tensor {name} has dtype {view.get_dtype()}; quantized weights are not "
                f"supported (only {', '.join(_FLOATS)})"
            )
        return view

    def raw(self, name: str) -> np.ndarray:
        """One whole tensor, whatever its shape and dtype."""
        return self._open(self.file_of(name)).get_tensor(name)

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """One whole tensor."""
        return self.slice_of(name, shape)[:]
