"""One spelling for each thing: Unicode, TeX spacing and delimiters, thousands, text in formulas.

What `clean` returns holds ASCII TeX without spacing commands; words that stood in \\text{...} are
between « and ».
"""

from __future__ import annotations

import re
import unicodedata

_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUB = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_CHARACTERS = {
    **dict.fromkeys("−–—‐‑‒﹣－", "-"),
    **{"×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ", "∗": "*"},
    **{"≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx "},
    **{"∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "∖": r"\setminus "},
    **{"±": r"\pm ", "∓": r"\mp ", "°": r"^\circ ", "º": r"^\circ ", "′": "'", "’": "'", "‘": "'"},
    **{"“": '"', "”": '"', "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor "},
    **{
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "⁄": "/",
        "∕": "/",
        "\u00a0": r"\,",
        "\u2009": r"\,",
        "\u202f": r"\,",
    },
    **{"ℝ": r"\mathbb{R}", "ℂ": r"\mathbb{C}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}"},
    **{
        "«": "?",
        "»": "?",
        "¶": "?",
        "ℵ": r"\aleph ",
        "ℓ": r"\ell ",
        "％": "%",
        "，": ",",
        "。": ".",
        "、": ",",
    },
    **{"₹": "«rupee»", "€": "«euro»", "£": "«pound»", "¥": "«yen»", "ϕ": r"\phi ", "ϵ": r"\epsilon "},
}
_GREEK = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi _ pi rho _ sigma tau upsilon phi
chi psi omega
"""
_GREEK_NAMES = _GREEK.split()
for _i, _name in enumerate(_GREEK_NAMES):
    if _name != "_":
        _CHARACTERS[chr(0x3B1 + _i)] = f"\\{_name} "
for _upper in ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"):
    _CHARACTERS[chr(0x391 + _GREEK_NAMES.index(_upper.lower()))] = f"\\{_upper} "

_ROOT = re.compile(r"([√∛])\s*(\(|\{|[0-9]+(?:\.[0-9]+)?|[a-zA-Z]|\\[a-zA-Z]+)?")


def _unicode(text: str) -> str:
    if text.isascii():
        return text
    out = []
    for table, mark in ((_SUPER, "^"), (_SUB, "_")):
        keys = re.escape("".join(table))
        spell = lambda m, table=table, mark=mark: mark + "{" + "".join(table[c] for c in m.group()) + "}"
        text = re.sub(f"[{keys}]+", spell, text)
    for char in text:
        if unicodedata.decomposition(char).startswith("<fraction>"):
            top, _, bottom = unicodedata.normalize("NFKC", char).partition("⁄")
            out.append(f"\\frac{{{top}}}{{{bottom}}}" if bottom else "?")
        elif char in _CHARACTERS:
            out.append(_CHARACTERS[char])
        elif unicodedata.category(char) == "Cf":  # invisible
            continue
        else:
            out.append("".join(_CHARACTERS.get(c, c) for c in unicodedata.normalize("NFKC", char)))
    text = "".join(out)
    return _ROOT.sub(_root, text)


def _root(match: re.Match) -> str:
    name = r"\sqrt" if match.group(1) == "√" else r"\sqrt[3]"
    operand = match.group(2) or ""
    return f"{name}{operand}" if operand in ("(", "{", "") else f"{name}{{{operand}}}"


_TEXT_COMMAND = re.compile(r"\\(?:text|mbox|hbox|textrm|textup|textnormal|textsf)\s*\{([^{}]*)\}")
_FONT_TEXT = re.compile(
    r"\\(?:textbf|textit|emph|mathrm|mathbf|mathit|mathsf|operatorname\*?|rm)\s*\{([^{}]*)\}"
)
_FONT = re.compile(
    r"\\(?:boldsymbol|bm|mathbf|mathit|mathcal|vec|overrightarrow|displaystyle|textstyle|limits)(?![a-zA-Z])"
)
_SIZE = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\.?")
_SPACE = re.compile(r"\\(?:[,;:> ]|(?:q?quad|thinspace|enspace)(?![a-zA-Z]))|~|\\(?=\n)")
_BLACKBOARD = re.compile(r"\\mathbb\s*([A-Z])")
_RENAMED = {
    **dict.fromkeys(("leq", "leqslant", "leqq"), "le"),
    **dict.fromkeys(("geq", "geqslant", "geqq"), "ge"),
    **{"neq": "ne", "lt": "<", "gt": ">", "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]"},
    **{
        "varnothing": "emptyset",
        "degree": r"^\circ ",
        "imath": "i",
        "bigcup": "cup",
        "backslash": "setminus",
    },
    **{"dots": "ldots", "cdots": "ldots", "lor": "«or»", "vee": "«or»", "land": "«and»", "wedge": "«and»"},
    **{
        "langle": "langle",
        "colon": ":",
        "mid": "|",
        "euro": "«euro»",
        "pounds": "«pound»",
        "R": r"\mathbb{R}",
    },
}
_COMMAND = re.compile(r"\\([a-zA-Z]+)")


def _renamed(match: re.Match) -> str:
    new = _RENAMED.get(match.group(1))
    if new is None:
        return match.group()
    return f"\\{new} " if new.isalpha() else new


def _font_text(match: re.Match) -> str:
    inner = match.group(1).strip()
    return inner if re.fullmatch(r"[a-zA-Z]|[^a-zA-Z]+", inner) else f"«{inner}»"


def _text(match: re.Match) -> str:
    inner = match.group(1)
    return f"«{inner}»" if re.search(r"[a-zA-Z]", inner) else inner


_THOUSANDS = re.compile(r"(?<![\d.,])(?P<head>[1-9]\d{0,2})(?P<rest>(?:(?:\{,\}|,\\!\s*|\\,)\d{3})+)(?!\d)")
_SPACED = re.compile(r"(?<![\d.,}/^_] )(?<![\d.,}/^_])[1-9]\d{0,2}(?: \d{3})+(?! ?[\d/]|,?\d|! ?\d)")
_COMMAS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")


def clean(text: str) -> str:
    """The text in one spelling."""
    text = _unicode(text)
    text = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
    text = re.sub(r"\\\\(?:\[[^\]]{0,9}\])?", "¶", text)
    if text.strip().startswith("**"):
        text = re.sub(r"\*\*(?=\S)([^*]+)\*\*", r"\1", text.strip())
    text = text.replace("\\$", " «dollar» ")
    text = re.sub(r"(?<!\\)\\(?:\(|\)|\[|\])", " ", text)
    text = _dollars(text)
    text = text.replace("**", "^").replace("`", " ")
    text = re.sub(r"(?<=\d)\s*\\!", "", text) if "\\!" in text and "," not in text else text
    text = _THOUSANDS.sub(lambda m: m.group("head") + re.sub(r"\D", "", m.group("rest")), text)
    text = text.replace("\\!", "")
    for pattern, replace in ((_TEXT_COMMAND, _text), (_FONT_TEXT, _font_text)):
        text = pattern.sub(replace, text)
    text = _FONT.sub("", text)
    text = _SIZE.sub("", text)
    text = _SPACE.sub(" ", text)
    text = _COMMAND.sub(_renamed, _BLACKBOARD.sub(r"\\mathbb{\1}", text))
    text = re.sub(r"\s+", " ", text).strip()
    if re.fullmatch(r"«[^«»]*[0-9][^«»]*»", text):  # a formula written as text
        text = text[1:-1].strip()
    text = re.sub(r"(?<=\d) ?(?:x|X) ?(?=10 ?\^)", r"\\times ", text)
    text = _SPACED.sub(lambda m: m.group().replace(" ", ""), text)
    return _join_commas(text)


def _dollars(text: str) -> str:
    """Math delimiters go; a lone dollar before a number is money."""
    if text.count("$") % 2 and re.match(r"\s*-?\$\s*[0-9.]", text):
        text = text.replace("$", "«dollar»", 1)
    return text.replace("$", " ")


def _join_commas(text: str) -> str:
    """1,000 is a number, but not between brackets, where commas separate: (1,000) is no thousand."""
    out, depth, at = [], 0, 0
    if "," not in text:
        return text
    for match in re.finditer(r"[()\[\]{}]", text):
        if depth == 0:
            out.append(_COMMAS.sub(lambda m: m.group().replace(",", ""), text[at : match.start()]))
        else:
            out.append(text[at : match.start()])
        out.append(match.group())
        depth += 1 if match.group() in "([{" else -1
        at = match.end()
    tail = text[at:]
    out.append(_COMMAS.sub(lambda m: m.group().replace(",", ""), tail) if depth == 0 else tail)
    return "".join(out)
