"""A strict reader of closed-form expressions: all of the text is understood, or none of it.

Lenient readers are how wrong answers get paid: one that skips what it does not know finds the gold
inside anything. Operators that are the question rather than an answer (integrals, sums, limits, mod)
are not read on purpose: repeating the question must not earn its answer.
"""

from __future__ import annotations

from fractions import Fraction

from agon_jax.verify.math_tokens import (
    ALIASES,
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    INVERSE,
    Unreadable,
    number,
    tokens,
)

Node = tuple  # (kind, ...): see Parser for the kinds

MAX_DEPTH = 60
_UNKNOWN_FUNCTIONS = set("fghFGH")  # f(x) is an application; x(y+1) is a product


class Parser:
    """Recursive descent over the tokens. `sign` is what a plus-minus stands for in this reading."""

    def __init__(self, text: str, sign: int = 1):
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0
        self.sign = sign
        self.plus_minus = 0  # how many were met
        self.bars = 0

    def parse(self) -> Node:
        if not self.tokens:
            raise Unreadable("empty")
        node = self._sum()
        if self.at < len(self.tokens):
            raise Unreadable(f"unexpected {self._peek()!r}")
        return node

    # Tokens.

    def _peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def _kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def _take(self, *wanted: str) -> str:
        text = self._peek()
        if not text or (wanted and text not in wanted):
            raise Unreadable(f"expected {wanted} found {text!r}")
        self.at += 1
        return text

    # Grammar.

    def _sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        terms = [self._signed(self._product)] if self._peek() in _SIGNS else [self._product()]
        while self._peek() in _SIGNS:
            terms.append(self._signed(self._product))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", terms)

    def _signed(self, inner) -> Node:
        negative = False
        for count in range(len(self.tokens)):
            if self._peek() not in _SIGNS:
                break
            if count > 2:
                raise Unreadable("too many signs")
            text = self._take()
            if text in ("\\pm", "\\mp"):
                self.plus_minus += 1
                negative ^= (text == "\\pm") == (self.sign < 0)
            else:
                negative ^= text == "-"
        node = inner()
        return ("neg", node) if negative else node

    def _product(self) -> Node:
        factors = [self._power()]
        while True:
            text, kind = self._peek(), self._kind()
            if text in ("*", "\\cdot", "\\times", "\\ast"):
                self._take()
                factors.append(self._signed(self._power))
            elif text in ("/", "\\div"):
                self._take()
                divisor = self._signed(self._power)
                if self._starts_operand():
                    raise Unreadable("a/bc may mean (a/b)c or a/(bc)")
                factors = [("div", factors[0] if len(factors) == 1 else ("mul", factors), divisor)]
            elif kind == "num":
                self._mixed(factors)
            elif self._starts_operand():
                if _is_int(factors[-1]) and text in ("\\frac", "\\dfrac", "\\tfrac"):
                    self._mixed_fraction(factors)
                else:
                    factors.append(self._power())
            else:
                return factors[0] if len(factors) == 1 else ("mul", factors)

    def _starts_operand(self) -> bool:
        text, kind = self._peek(), self._kind()
        if kind in ("num", "sym"):
            return True
        if text == "|":
            return self.bars == 0
        return text in ("(", "{", "[") or (kind == "cmd" and text not in _NOT_OPERANDS)

    def _mixed(self, factors: list[Node]) -> None:
        """`2 1/2`; every other numeral right after an operand is unreadable (2 345, x2)."""
        spaced = self.tokens[self.at][2]
        if not (len(factors) == 1 and _is_int(factors[0]) and spaced and self._peek(1) == "/"):
            raise Unreadable("a numeral after an operand")
        whole, top = factors[0][1], Fraction(self._take())
        self._take("/")
        if self._kind() != "num":
            raise Unreadable("a numeral after an operand")
        factors[0] = ("num", whole + _proper(top, Fraction(self._take())))
        if self._starts_operand():
            raise Unreadable("a factor after a mixed number")

    def _mixed_fraction(self, factors: list[Node]) -> None:
        whole = factors.pop()[1]
        node = self._power()
        if node[0] == "div" and _is_int(node[1]) and _is_int(node[2]):
            factors.append(("num", whole + _proper(node[1][1], node[2][1])))
        else:
            factors += [("num", whole), node]

    def _power(self) -> Node:
        node = self._postfix()
        if self._peek() == "^":
            self._take()
            if self._degrees():
                return ("mul", [node, ("div", ("const", "pi"), ("num", Fraction(180)))])
            exponent = self._signed(self._power_argument)
            return ("pow", node, exponent)
        return node

    def _degrees(self) -> bool:
        """Takes the circle of `30^\\circ`."""
        for spelled in (["\\circ"], ["{", "\\circ", "}"]):
            if [self._peek(i) for i in range(len(spelled))] == spelled:
                self.at += len(spelled)
                return True
        return False

    def _power_argument(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        node = self._group() if self._peek() == "{" else self._postfix()
        if self._peek() == "^":
            self._take()
            node = ("pow", node, self._signed(self._power_argument))
        self.depth -= 1
        return node

    def _postfix(self) -> Node:
        node = self._atom()
        while self._peek() == "!":
            self._take()
            node = ("fact", node)
        return node

    def _group(self) -> Node:
        self._take("{")
        bars, self.bars = self.bars, 0
        node = self._sum()
        self.bars = bars
        self._take("}")
        return node

    def _bracketed(self, close: str) -> Node:
        self._take()
        bars, self.bars = self.bars, 0
        node = self._sum()
        self.bars = bars
        self._take(close)
        return node

    def _atom(self) -> Node:
        text, kind = self._peek(), self._kind()
        if kind == "num":
            return ("num", number(self._take()))
        if kind == "sym":
            return self._symbol(self._take())
        if text == "{":
            return self._group()
        if text in _CLOSERS:
            node = self._bracketed(_CLOSERS[text])
            return node if text in ("(", "[") else ("fn", text.removeprefix("\\l"), node)
        if text in ("|", "\\vert", "\\lvert"):
            self._take()
            self.bars += 1
            node = self._sum()
            self.bars -= 1
            self._take(*({"\\lvert": ("\\rvert",)}.get(text, (text,))))
            return ("fn", "abs", node)
        if kind == "cmd":
            return self._command(self._take()[1:])
        raise Unreadable(f"unexpected {text!r}")

    def _command(self, name: str) -> Node:
        name = ALIASES.get(name, name)
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            return ("div", self._argument(), self._argument())
        if name in ("binom", "dbinom", "tbinom"):
            return ("fn", "binom", self._argument(), self._argument())
        if name in ("sqrt", "cbrt"):
            degree = ("num", Fraction(3 if name == "cbrt" else 2))
            if self._peek() == "[" and name == "sqrt":
                degree = self._bracketed("]")
            inner = self._bracketed(")") if self._peek() == "(" else self._argument()
            return ("root", degree, inner)
        if name == "abs":
            return ("fn", "abs", self._application())
        if name in ("floor", "ceil"):
            return ("fn", name, self._application())
        if name in FUNCTIONS:
            return self._function(name)
        if name in ("zeta", "Gamma") and self._peek() == "(":
            return ("fn", name, self._bracketed(")"))
        if name in CONSTANTS:
            return ("const", CONSTANTS[name])
        if name in GREEK:
            return self._symbol("\\" + name)
        raise Unreadable(f"command {name!r}")

    def _argument(self) -> Node:
        """A TeX argument: a group, or one token (one digit: \\frac12 is a half)."""
        if self._peek() == "{":
            return self._group()
        if self._kind() == "num":
            text = self._peek()
            if not text.isdigit():
                raise Unreadable("a decimal without braces")
            if len(text) == 1:
                self._take()
                if self._kind() == "num" and not self.tokens[self.at][2]:
                    raise Unreadable("digits without braces")
                return ("num", Fraction(text))
            if len(text) == 2 and self._peek(-1) in ("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"):
                kind, _, spaced = self.tokens[self.at]
                self.tokens[self.at : self.at + 1] = [(kind, text[0], spaced), (kind, text[1], True)]
                return ("num", Fraction(self._take()))
            raise Unreadable("digits without braces")
        if self._kind() == "sym" or (self._kind() == "cmd" and self._peek() not in _NOT_OPERANDS):
            return self._atom()
        raise Unreadable("missing argument")

    def _application(self) -> Node:
        return self._bracketed(")") if self._peek() == "(" else self._argument()

    def _function(self, name: str) -> Node:
        base = None
        if name == "log" and self._peek() == "_":
            self._take()
            base = self._subscript()
        exponent = None
        if self._peek() == "^":
            self._take()
            exponent = self._signed(self._power_argument)
            if exponent == ("neg", ("num", Fraction(1))) and name in INVERSE:
                name, exponent = INVERSE[name], None
        if self._peek() in ("(", "["):
            inner = self._bracketed(_CLOSERS[self._peek()])
            if self._peek() == "^" and exponent is None:  # (sin x)^2, as computer algebra reads it
                self._take()
                exponent = self._signed(self._power_argument)
        else:
            inner = self._function_product()
        node = ("fn", name, inner) if base is None else ("div", ("fn", "ln", inner), ("fn", "ln", base))
        return node if exponent is None else ("pow", node, exponent)

    def _subscript(self) -> Node:
        if self._peek() == "{":
            return self._group()
        return self._atom()

    def _function_product(self) -> Node:
        """The argument of a function without brackets: factors up to a sign or the next function."""
        if self._peek() in _SIGNS:
            raise Unreadable("a sign after a function")
        factors = [self._power()]
        while self._starts_operand() and self._kind() != "num" and self._peek() not in ("(", "["):
            if self._kind() == "cmd" and self._peek()[1:] in FUNCTIONS:
                break
            factors.append(self._power())
        if self._peek() == "/":
            raise Unreadable("sin a/b may mean (sin a)/b or sin(a/b)")
        return factors[0] if len(factors) == 1 else ("mul", factors)

    def _symbol(self, name: str) -> Node:
        if self._peek() == "_":
            self._take()
            start = self.at
            if self._peek() == "{":
                self._group_text()
            else:
                self._take()
            name += "_" + "".join(t[1] for t in self.tokens[start : self.at] if t[1] not in "{}")
        while self._peek() == "'":
            name += self._take()
        if name.rstrip("'") in _UNKNOWN_FUNCTIONS and self._peek() == "(":
            return ("fn", "?" + name, self._bracketed(")"))
        if name in ("e", "i"):
            return ("const", name)
        return ("sym", name)

    def _group_text(self) -> None:
        """Skips a braced subscript, whatever simple tokens it holds."""
        self._take("{")
        while self._peek() != "}":
            if self._kind() not in ("num", "sym") and self._peek() not in ("+", "-", ","):
                raise Unreadable("subscript")
            self._take()
        self._take("}")


_SIGNS = ("+", "-", "\\pm", "\\mp")
_CLOSERS = {"(": ")", "[": "]", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_NOT_OPERANDS = {
    *("\\cdot", "\\times", "\\ast", "\\div", "\\pm", "\\mp", "\\rfloor", "\\rceil", "\\vert", "\\rvert"),
    *("\\{", "\\}", "\\|", "\\%"),
}


def _is_int(node: Node) -> bool:
    return node[0] == "num" and node[1].denominator == 1


def _proper(top: Fraction, bottom: Fraction) -> Fraction:
    if not (top.denominator == bottom.denominator == 1 and 0 < top < bottom):
        raise Unreadable("a whole number before an improper fraction")
    return top / bottom


def parse(text: str) -> list[Node]:
    """The expression, or the two that one plus-minus stands for.

    Raises:
      Unreadable: when any part of the text is not understood.
    """
    reader = Parser(text)
    node = reader.parse()
    if not reader.plus_minus:
        return [node]
    if reader.plus_minus > 1 and "\\mp" not in text:
        raise Unreadable("several plus-minus signs may or may not go together")
    return [node, Parser(text, sign=-1).parse()]


def symbols(node: Node) -> set[str]:
    """Names of the free symbols."""
    if node[0] == "sym":
        return {node[1]}
    return set().union(*map(symbols, children(node)))


def children(node: Node) -> list[Node]:
    """The expressions that a node is made of."""
    parts = node[1] if node[0] in ("add", "mul") else node[1:]
    return [part for part in parts if isinstance(part, tuple)]
