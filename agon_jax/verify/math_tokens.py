"""Tokens of an expression, and the names that expressions know."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_TOKENS = 4000
MAX_DIGITS = 800  # of one numeral

FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech", "csch"),
    *("arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc", "arcsinh", "arccosh", "arctanh"),
    *("ln", "log", "lg", "exp", "erf"),
}
INVERSE = {name[3:]: name for name in FUNCTIONS if name.startswith("arc")}
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "arsinh": "arcsinh"}
ALIASES |= {"arcosh": "arccosh", "artanh": "arctanh"}
_GREEK = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho
sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
ell aleph hbar beth
"""
GREEK = set(_GREEK.split())
CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "inf": "inf", "oo": "inf"}
_WORDS = FUNCTIONS | set(ALIASES) | GREEK | set(CONSTANTS) | {"sqrt", "cbrt", "abs", "binom", "floor", "ceil"}

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<num>[0-9]*\.[0-9]*\\overline\{[0-9]+\}|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    | (?P<cmd>\\(?:[a-zA-Z]+|[{}|%]))
    | (?P<word>[a-zA-Z]+)
    | (?P<op>[-+*/^_(){}\[\]|!',])
    )""",
    re.VERBOSE,
)


class Unreadable(ValueError):
    """The text is not an expression this reader knows."""


def number(text: str) -> Fraction:
    """Value of a numeral, with an overlined repeating part if it has one."""
    if len(text) > MAX_DIGITS:
        raise Unreadable("too many digits")
    head, _, repeat = text.partition("\\overline{")
    if not repeat:
        return Fraction(text)
    repeat = repeat.rstrip("}")
    digits = len(head.partition(".")[2])
    return Fraction(f"0{head}0") + Fraction(int(repeat), (10 ** len(repeat) - 1) * 10**digits)


def tokens(text: str) -> list[tuple[str, str, bool]]:
    """(kind, text, whether a space comes before) of each token."""
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match or len(found) > MAX_TOKENS:
            raise Unreadable(f"unexpected {text[at : at + 10]!r}")
        kind, value = match.lastgroup, match.group(match.lastgroup)
        spaced = match.start(match.lastgroup) > at
        found += _split_word(value, spaced) if kind == "word" else [(kind, value, spaced)]
        at = match.end()
    return found


def _split_word(word: str, spaced: bool) -> list[tuple[str, str, bool]]:
    """A known name, a name with its one-letter argument (cosx), or a product of up to three letters."""
    if word in _WORDS and len(word) > 1:
        return [("cmd", "\\" + word, spaced)]
    if word[:-1] in FUNCTIONS:
        return [("cmd", "\\" + word[:-1], spaced), ("sym", word[-1], False)]
    if len(word) > 3:
        raise Unreadable(f"word {word[:20]!r}")
    return [("sym", letter, spaced and i == 0) for i, letter in enumerate(word)]
