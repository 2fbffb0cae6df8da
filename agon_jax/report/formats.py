"""Numbers as people read them."""

from __future__ import annotations

from matplotlib.ticker import EngFormatter


def percent(fraction: float) -> str:
    """0.5432 -> 54.3"""
    return f"{100 * fraction:.1f}"


def points(fraction: float) -> str:
    """A difference of two fractions in percentage points with its sign: 0.041 -> +4.1, -1e-5 -> 0.0"""
    shown = f"{100 * fraction:+.1f}"
    return shown[1:] if float(shown) == 0 else shown.replace("-", "−")


def interval(low: float, high: float, form=percent) -> str:
    """[50.1, 58.5]"""
    return f"[{form(low)}, {form(high)}]"


def p_value(p: float) -> str:
    """p = 0.031, p < 0.001"""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def bare_p(p: float) -> str:
    """0.031, < 0.001"""
    return p_value(p).removeprefix("p = ").removeprefix("p ")


def count(number: float) -> str:
    """Tokens and the like, short: 6100 -> 6.1k, 43.25 -> 43.2"""
    return EngFormatter(places=1, sep="")(number) if number >= 1000 else f"{number:.1f}"


def plural(number: int, noun: str) -> str:
    """1 seed, 2 seeds, 2 passes"""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
