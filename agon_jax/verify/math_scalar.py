"""Numbers and expressions with what stands around them: units, percent, degrees, money, bases."""

from __future__ import annotations

import dataclasses
import re

from agon_jax.verify import math_units
from agon_jax.verify.math_expr import parse
from agon_jax.verify.math_forms import Based, Listing, Scalar
from agon_jax.verify.math_tokens import Unreadable

_BASE = re.compile(
    r"\(?([0-9][0-9A-Fa-f]*|[A-F][0-9A-F]*(?=\)?_\{?1[1-6]))\)?(?:_\s*\{?\s*\(?|\s*«?\s*base\s*»?\s*)«?\s*([0-9]+|[a-z]+)\s*»?\)?\s*\}?"
)
_BASE_NAMES = {
    **{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"eleven": 11, "twelve": 12, "sixteen": 16},
}
_PERCENT = re.compile(r"\s*(?:\\%|%|«\s*percent\s*»|\bpercent|«\s*(?:\\)?%\s*»)$")
_DEGREES = re.compile(
    r"\s*(?:\^\s*\{?\s*\\circ\s*\}?\s*«?\s*([CF]?)\s*»?|«\s*degrees?\s*»|(?<=[\d\s)}])degrees?)\s*$"
)
_TRIGONOMETRIC = re.compile(r"sin|cos|tan|cot|sec|csc")
_MONEY = re.compile(r"^([-+]?)\s*«(dollar|euro|pound|yen|rupee)»\s*(.*)$")
_SCIENTIFIC = re.compile(r"([0-9]*\.[0-9]+|1|[0-9]+(?=[eE][+-]?[0-9]{2}|E))[eE]([+-]?[0-9]{1,5})")
_DECIMAL = re.compile(r"[-+]?[0-9]*\.([0-9]+)")
_UNIT = re.compile(
    r"""^(?P<value>.*?[0-9)}a-z])
    (?:\s*«\s*(?P<text>[a-zA-Z\ ./]+?)\s*»
      |(?:\s|\\[ ])+(?P<plain>[a-zA-Z][a-zA-Z/\ ]*?)
      |(?<=[0-9])(?P<stuck>cm|mm|km|kg|mph|ml|ft|lbs?)
    )\s*(?P<power>\^\s*\{?[23]\}?)?$""",
    re.VERBOSE,
)


def scalar(text: str) -> object:
    """A number or expression, with a unit or not; a listing for plus-minus."""
    text = text.strip()
    if based := _BASE.fullmatch(text):
        return _based(*based.groups())
    if money := _MONEY.match(text):
        sign, unit, rest = money.groups()
        rest = re.sub(r"\s*«?\s*(?:dollars|USD)\s*»?$", "", rest)
        return _attach(_plain(sign + rest), unit=unit)
    if percent := _PERCENT.search(text):
        return _attach(_plain(text[: percent.start()]), percent=True)
    if (degrees := _DEGREES.search(text)) and not _TRIGONOMETRIC.search(text):
        return _attach(_plain(text[: degrees.start()]), unit="degree" + (degrees.group(1) or ""))
    try:
        return _plain(text)
    except Unreadable:
        form = with_unit(text)
        if form is None:
            raise
        return form


def with_unit(text: str) -> object | None:
    """The reading of a text as a value and a unit; None without one."""
    match = _UNIT.match(text) if len(text) < 300 else None
    if not match or (match["plain"] and len(match["plain"]) == 1 and match["plain"] not in "mgsL"):
        return None  # 5 n is a product
    phrase = match["text"] or match["plain"] or match["stuck"]
    unit = math_units.canonical(phrase + (match["power"] or "").replace(" ", ""))
    if unit is None:
        return None
    try:
        return _attach(_plain(match["value"].strip()), unit=unit[0])
    except Unreadable:
        return None


def _attach(form: object, **extra) -> object:
    if isinstance(form, Listing):
        return Listing(tuple(_attach(item, **extra) for item in form.items))
    return dataclasses.replace(form, **extra)


def _plain(text: str) -> object:
    text = text.strip()
    text = _SCIENTIFIC.sub(r"\1*10^{\2}", text) if _SCIENTIFIC.fullmatch(text.lstrip("+-")) else text
    nodes = parse(text)
    if len(nodes) > 1:
        return Listing(tuple(Scalar(node) for node in nodes))
    decimal = _DECIMAL.fullmatch(text)
    return Scalar(nodes[0], decimals=len(decimal.group(1)) if decimal else None)


def _based(digits: str, base: str) -> Based:
    value = int(base) if base.isdigit() and len(base) < 3 else _BASE_NAMES.get(base, 0)
    if not 2 <= value <= 36 or len(digits) > 1000:
        raise Unreadable("base")
    try:
        int(digits, value)
    except ValueError as error:
        raise Unreadable("a digit that the base does not have") from error
    return Based(digits.upper().lstrip("0") or "0", value)
