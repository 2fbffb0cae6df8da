"""Reads the form of an answer: lists, relations, sets, brackets and matrices around its expressions."""

from __future__ import annotations

import dataclasses
import re

from agon_jax.verify.math_expr import Node, parse, symbols
from agon_jax.verify.math_forms import (
    Assignment,
    Listing,
    Matrix,
    Relation,
    Scalar,
    Sequence,
    Words,
    enclosed,
    split,
)
from agon_jax.verify.math_reals import Reals, difference, intersection, interval, to_reals, union
from agon_jax.verify.math_same import same
from agon_jax.verify.math_scalar import scalar
from agon_jax.verify.math_tokens import FUNCTIONS, GREEK, Unreadable
from agon_jax.verify.math_value import contains_infinity

_REAL_LINE = {"all real numbers", "all reals", "all real values", "all real"}
_TRAILING = " .,;:?"


def read(text: str) -> object:
    """The form of a cleaned text.

    Raises:
      Unreadable: when it is none of the known ones.
    """
    text = text.strip().lstrip(": ").rstrip(_TRAILING + "¶")
    text = re.sub(r"«\s*[.,;]?\s*»", " ", text).strip()
    if not re.search(r"[A-Za-z0-9]", text):
        raise Unreadable("empty")
    if text == r"\mathbb{R}" or text.strip("«» ").lower() in _REAL_LINE:
        return Reals.line()
    if text == r"\emptyset" or re.fullmatch(r"\\\{\s*\\\}", text):
        return Listing((), braces=True)
    words = _words(text)
    if words is not None:
        return words
    text = _exact_side(text)
    for reader in (_logic, _commas, _relation, _set_algebra, _brackets, _matrix):
        form = reader(text)
        if form is not None:
            return form
    return scalar(text)


_WORD = re.compile(r"[A-Za-z][A-Za-z'’ .\-]*")
_ARTICLES = re.compile(r"^(?:the|an|a)\s+(?=\w{2})")
_FORMULA_WORDS = FUNCTIONS | GREEK | {"pi", "infinity", "infty", "inf", "sqrt"}
_PRODUCT_LETTERS = set("abcxyzpqrtuvwkmn")


def _words(text: str) -> object | None:
    quoted = "«" in text
    bare = " ".join(re.sub(r"[«»]", " ", text).split())
    if bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    bare = bare.strip(_TRAILING + "\"'")
    if choice := re.fullmatch(r"(?i:option |choice |answer )?\(?([A-Z])[.)]?", bare):
        return Scalar(("sym", choice.group(1)))
    if not _WORD.fullmatch(bare) or (quoted and not re.fullmatch(r"[\s().]*«[^«»]*»[\s().]*", text)):
        return None
    if not quoted and _is_formula(bare):
        return None
    pieces = re.split(r"\s*(?:,|\band\b|\bor\b)\s*", bare, flags=re.IGNORECASE)
    if len(pieces) > 1:
        if not all(pieces):
            raise Unreadable("a connective without both sides")
        return Listing(tuple(_words(f"«{piece}»") for piece in pieces))
    if len(bare) > 60 or bare.count(" ") > 5:
        raise Unreadable("a sentence")
    text = _ARTICLES.sub("", " ".join(bare.casefold().replace(".", "").split()))
    return Words(text) if len(text) > 1 else Scalar(("sym", text))


def _is_formula(bare: str) -> bool:
    """Whether letters that are not marked as text are symbols: `p - q`, `xy`, `cos x`, not `no`."""
    words = re.findall(r"[A-Za-z]+", bare)
    if words[0] in _FORMULA_WORDS or any(len(w) == 1 and w not in ("a", "A", "I") for w in words):
        return True
    if "-" in bare and min(map(len, words)) < 3:
        return True
    letters = set(bare)
    return len(bare) < 4 and (letters <= set("xyz") or (len(bare) == 2 and letters <= _PRODUCT_LETTERS))


def _exact_side(text: str) -> str:
    """What stands before an "approximately" (the rest is a comment on it), but for a mere name."""
    pieces, found = split(text, r"\\(?:approx|simeq|sim)(?![a-zA-Z])")
    return pieces[0] if not found or (pieces[0] and _variable(pieces[0]) is None) else pieces[1]


def _logic(text: str) -> object | None:
    text = re.sub(r",?\s*«\s*(or|and)\s*»", lambda m: f" {m.group(1).lower()} ", text, flags=re.IGNORECASE)
    pieces, found = split(text, r"(?i),?(?<![a-zA-Z\\])(?:or|and)(?![a-zA-Z])")
    if not found:
        return None
    if not all(pieces):
        raise Unreadable("a connective without both sides")
    forms = [item for piece in pieces for item in _items(read(piece))]
    forms = _share_variable(forms)
    if all(isinstance(form, Reals) for form in forms) and len({form.variable for form in forms}) == 1:
        kinds = {kind.strip(" ,").lower() for kind in found}
        if len(kinds) == 1:
            return (union if kinds == {"or"} else intersection)(forms)
    return _listing(forms)


def _commas(text: str) -> object | None:
    pieces, found = split(text, r"[,;]")
    if not found:
        return None
    if not all(pieces):
        raise Unreadable("an empty item")
    for piece in pieces:
        if re.match(r"-?0\d", piece):
            raise Unreadable("digits after a comma")
    return _listing(_share_variable([item for piece in pieces for item in _items(read(piece))]))


def _items(form: object) -> list:
    """The values that a plus-minus or an inner bare list stands for."""
    if isinstance(form, Listing) and not form.braces:
        return list(form.items)
    if isinstance(form, Assignment) and isinstance(form.value, Listing) and not form.value.braces:
        return [Assignment(form.variable, item) for item in form.value.items]
    return [form]


def _share_variable(forms: list) -> list:
    """`x = 1, 2` and `x = 1, x = 2` name one variable for all values."""
    names = {form.variable for form in forms if isinstance(form, Assignment)}
    if len(names) != 1 or not isinstance(forms[0], Assignment):
        return forms
    if any(not isinstance(form, (Assignment, Scalar)) for form in forms):
        return forms
    return [form if isinstance(form, Assignment) else Assignment(*names, form) for form in forms]


def _listing(forms: list) -> object:
    names = {form.variable if isinstance(form, Assignment) else None for form in forms}
    if len(names) == 1 and None not in names:
        return Assignment(*names, Listing(tuple(form.value for form in forms)))
    return Listing(tuple(forms))


_VARIABLE = re.compile(
    r"(?:\\?[a-zA-Z]+|«[a-zA-Z ]+»|[fghA-Z]\^\{?-1\}?)(?:_\{?\w+\}?)?'*"
    r"(?:\(\s*[a-zA-Z](?:\s*,\s*[a-zA-Z])*\s*\))?"
    r"|\(\s*[a-zA-Z](?:_\{?\w+\}?)?(?:\s*,\s*[a-zA-Z](?:_\{?\w+\}?)?)*\s*\)"
)
_REVERSED = {">": "<", r"\ge": r"\le", ">=": r"\le", "<=": r"\le"}


def _variable(text: str) -> str | None:
    text = text.strip()
    if not _VARIABLE.fullmatch(text) or text in ("e", "i", "pi", r"\pi", r"\infty", "infinity"):
        return None
    head = re.match(r"\\?[a-zA-Z]+|.", text).group()
    if head[0] == "\\" and head[1:] not in GREEK:
        return None
    if 1 < len(head) < 4 and head.isalpha() and not head.isupper():
        return None  # xy is a product, AB a length, area a name
    if re.search(r"\b(?:not|no|never|or|and|without|except)\b", text, re.IGNORECASE):
        return None
    name = re.sub(r"[\s{}«»]", "", text)
    # f(x) = ... defines f; the name of its argument is part of the value.
    return name if name.startswith("(") else name.partition("(")[0]


def _relation(text: str) -> object | None:
    pieces, signs = split(text, r"[<>]=|!=|\\(?:le|ge|ne|in|notin|equiv)(?![a-zA-Z])|[<>=]")
    if not signs:
        return None
    if not all(pieces):
        raise Unreadable("a relation without both sides")
    signs = [sign.strip() for sign in signs]
    if signs == [r"\in"]:
        form = read(pieces[1])
        name = _variable(pieces[0])
        if name is None:
            raise Unreadable("membership")
        if isinstance(form, Sequence):
            form = to_reals(form) or form
        return dataclasses.replace(form, variable=name) if isinstance(form, Reals) else form
    if set(signs) == {"="}:
        return _equation(pieces)
    if r"\in" in signs or "=" in signs or r"\equiv" in signs or r"\notin" in signs:
        raise Unreadable("mixed relations")
    return _inequality(pieces, signs)


def _equation(pieces: list[str]) -> object:
    name = _variable(pieces[0])
    values = pieces
    if name is not None:
        values = pieces[1:]
    elif len(pieces) == 2 and (name := _variable(pieces[1])) is not None:
        values = pieces[:1]
    if name is not None:
        form = _agreed([read(value) for value in values])
        inner = form.node if isinstance(form, Scalar) else None
        if inner is None or name not in {s.lstrip("\\") for s in symbols(inner)} | symbols(inner):
            return Assignment(name, form)
    if len(pieces) != 2:
        return _agreed([read(piece) for piece in pieces])
    nodes = [_node(piece) for piece in pieces]
    if not symbols(nodes[0]) and not symbols(nodes[1]):
        return _agreed([read(piece) for piece in pieces])
    return Relation("=", *nodes)


def _agreed(forms: list) -> object:
    """The value of a chain a = b = c: all of its parts must be equal."""
    if any(not same(forms[0], form) or not same(form, forms[0]) for form in forms[1:]):
        raise Unreadable("an untrue equation")
    return forms[0]


def _node(text: str) -> Node:
    nodes = parse(text)
    if len(nodes) > 1:
        raise Unreadable("plus-minus in a relation")
    return nodes[0]


def _inequality(pieces: list[str], signs: list[str]) -> object:
    signs = [r"\le" if sign == "<=" else r"\ge" if sign == ">=" else sign for sign in signs]
    if signs == [r"\ne"] or signs == ["!="]:
        name = _variable(pieces[0])
        if name is None:
            raise Unreadable("not equal")
        return dataclasses.replace(difference(Reals.line(), [_node(pieces[1])]), variable=name)
    if len(signs) == 1 and signs[0] in _REVERSED:
        pieces, signs = pieces[::-1], [_REVERSED[signs[0]]]
    if len(signs) == 2 and all(sign in _REVERSED for sign in signs):
        pieces, signs = pieces[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    if any(sign not in ("<", r"\le") for sign in signs) or len(signs) > 2:
        raise Unreadable("inequalities that point both ways")
    infinity = ("const", "inf")
    if len(signs) == 2:
        if (name := _variable(pieces[1])) is None:
            raise Unreadable("no variable between the bounds")
        low, high = _node(pieces[0]), _node(pieces[2])
        return interval(low, signs[0] == r"\le", high, signs[1] == r"\le", variable=name)
    closed = signs[0] == r"\le"
    left, right = _variable(pieces[0]), _variable(pieces[1])
    if left is not None and right is None and not symbols(bound := _node(pieces[1])):
        return interval(("neg", infinity), False, bound, closed, variable=left)
    if right is not None and left is None and not symbols(bound := _node(pieces[0])):
        return interval(bound, closed, infinity, False, variable=right)
    return Relation(signs[0], _node(pieces[0]), _node(pieces[1]))


def _set_algebra(text: str) -> object | None:
    pieces, found = split(text, r"\\(?:cup|cap|setminus)(?![a-zA-Z])|(?<=\0)\s*(?:U|-|\\)\s*(?=\0)")
    found = [sign.strip() for sign in found]
    if not found or (set(found) & {"-", "\\"} and not pieces[0].startswith(r"\mathbb")):
        return None
    if set(found) & {r"\setminus", "-", "\\"}:
        if len(pieces) != 2:
            raise Unreadable("set algebra")
        whole, holes = read(pieces[0]), read(pieces[1])
        if isinstance(whole, Sequence):
            whole = to_reals(whole)
        if not (isinstance(whole, Reals) and isinstance(holes, Listing) and holes.braces):
            raise Unreadable("set algebra")
        if any(not isinstance(item, Scalar) for item in holes.items):
            raise Unreadable("set algebra")
        return difference(whole, [item.node for item in holes.items])
    forms = [read(piece) for piece in pieces]
    if all(isinstance(form, Listing) and form.braces for form in forms) and set(found) == {r"\cup"}:
        return Listing(tuple(item for form in forms for item in form.items), braces=True)
    parts = [to_reals(form) for form in forms]
    if any(part is None for part in parts) or len(set(found)) > 1:
        raise Unreadable("set algebra")
    return (intersection if found[0] == r"\cap" else union)(parts)


def _brackets(text: str) -> object | None:
    parts = enclosed(text)
    if parts is None:
        return None
    opener, inside, closer = parts
    if opener == "{" and closer == "}":
        return read(inside)
    if opener == "\\{":
        builder, bars = split(inside, r"[|:]")
        if len(bars) == 1 and all(builder) and re.match(r"[a-zA-Z]\b", builder[0]):
            form = read(builder[1])
            if isinstance(form, Reals):
                return form
            raise Unreadable("set builder")
        return Listing(tuple(_items(read(inside))), braces=True)
    pieces, found = split(inside, r"[,;]")
    if not found:
        if opener == "(" and closer == ")":
            return read(inside) if not re.fullmatch(r"[^a-zA-Z]*", inside) else None
        return None
    if not all(pieces):
        raise Unreadable("an empty coordinate")
    if any(re.match(r"-?0\d", piece) for piece in pieces):
        raise Unreadable("digits after a comma")
    brackets = {"\\langle": "<"}.get(opener, opener) + {"\\rangle": ">"}.get(closer, closer)
    if brackets not in ("()", "[]", "(]", "[)", "<>"):
        raise Unreadable("brackets")
    items = tuple(read(piece) for piece in pieces)
    form = Sequence(items, brackets)
    if brackets in ("(]", "[)") and len(items) != 2:
        raise Unreadable("an interval has two ends")
    infinite = any(isinstance(i, Scalar) and contains_infinity(i.node) for i in items)
    return (to_reals(form) or form) if brackets in ("(]", "[)") or infinite else form


_MATRIX = re.compile(
    r"^(?P<factor>.*?)[(\[]?\s*\\begin\s*\{(?P<kind>[pbB]?matrix|smallmatrix|array)\}(?:\{[clr| ]*\})?"
    r"(?P<body>.*)"
    r"\\end\s*\{(?P=kind)\}\s*[)\]]?$",
    re.DOTALL,
)


def _matrix(text: str) -> object | None:
    match = _MATRIX.match(text) if "\\begin" in text else None
    if not match:
        return None
    body = re.sub(r"\\hline", "", match.group("body")).strip().strip("¶").strip()
    if "\\begin" in body or "\\end" in body:
        raise Unreadable("nested matrices")
    rows = tuple(tuple(scalar(cell) for cell in row.split("&")) for row in body.split("¶"))
    if len({len(row) for row in rows}) != 1 or any(not isinstance(c, Scalar) for row in rows for c in row):
        raise Unreadable("ragged matrix")
    factor = (
        match.group("factor").strip().rstrip("(").strip().removesuffix("\\cdot").removesuffix("*").strip()
    )
    if factor:
        node = ("neg", ("num", 1)) if factor == "-" else _node(factor)
        rows = tuple(tuple(Scalar(("mul", [node, cell.node])) for cell in row) for row in rows)
    return Matrix(rows)
