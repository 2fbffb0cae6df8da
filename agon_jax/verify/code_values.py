"""Plain data between the judge and a judged program: the only thing that ever crosses, and never code.

An object whose type is not exactly one of Python's plain types does not cross, so a class with an
`__eq__` of its own never takes part in a comparison. Standard library only: the file is sent into the
sandbox as well. Only the judge's side (`decode`) has to hold against a hostile partner.
"""

from __future__ import annotations

import json
import os
import struct

LENGTH = struct.Struct("<I")
MAX_BYTES = 1 << 20  # of one message
MAX_DEPTH = 100
MAX_HASHED = 10_000  # of the keys of a set or dict: a program may choose keys that all collide


class NotPlain(ValueError):
    """A value that is not plain data, or is too large or too deep."""


def encode(value: object, depth: int = 0) -> object:
    """The value as JSON with a tag for each type: what JSON itself would lose stays apart.

    Raises:
      NotPlain: a type that is not exactly int, float, complex, bool, None, str, bytes, list, tuple, set,
        frozenset or dict; or more than MAX_DEPTH levels.
    """
    if depth > MAX_DEPTH:
        raise NotPlain("too deep")
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return ["int", hex(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is str:
        return ["str", value]
    if kind is bytes:
        return ["bytes", value.hex()]
    if kind is dict:
        pairs = [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in value.items()]
        return ["dict", pairs]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, [encode(item, depth + 1) for item in value]]
    raise NotPlain(f"{kind.__name__} is not plain data")


def decode(data: object, depth: int = 0) -> object:
    """The value that `encode` has made into `data`.

    Raises:
      NotPlain: anything that `encode` does not make, or a set or dict over MAX_HASHED keys.
    """
    if depth > MAX_DEPTH:
        raise NotPlain("too deep")
    if data is None or type(data) is bool:
        return data
    try:
        kind, body, *rest = data
        if kind == "complex":
            return complex(float.fromhex(body), float.fromhex(*rest))
        if rest:
            raise NotPlain("not an encoded value")
        if kind == "int":
            return int(body, 16)
        if kind == "float":
            return float.fromhex(body)
        if kind == "str" and type(body) is str:
            return body
        if kind == "bytes":
            return bytes.fromhex(body)
        if kind in ("set", "frozenset", "dict") and len(body) > MAX_HASHED:
            raise NotPlain("too many keys")
        if kind == "dict":
            return {decode(key, depth + 1): decode(item, depth + 1) for key, item in body}
        makers = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
        if type(body) is list and kind in makers:
            return makers[kind]([decode(item, depth + 1) for item in body])
    except NotPlain:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise NotPlain("not an encoded value") from error
    raise NotPlain("not an encoded value")


def answer(fd: int, scope: dict) -> None:
    """In the sandbox: evaluates the judge's calls in the program's scope until the judge is done."""
    while True:
        head = _read(fd, LENGTH.size)
        if not head:
            return
        request = json.loads(_read(fd, LENGTH.unpack(head)[0]))
        names = {name: decode(data) for name, data in request["names"].items()}
        try:
            value = eval(request["source"], {**scope, **names})
        except Exception as error:
            reply = ["raised", type(error).__name__]
        else:
            try:
                reply = ["value", encode(value)]
            except NotPlain as error:
                reply = ["refused", str(error)]
        text = json.dumps(reply).encode()
        if len(text) > MAX_BYTES:
            text = b'["refused", "too large"]'
        _write(fd, LENGTH.pack(len(text)) + text)


def _read(fd: int, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = os.read(fd, size - len(parts))
        if not part:
            return b""
        parts += part
    return parts


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
