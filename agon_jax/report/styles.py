"""One look for each method, and figures that follow the colours of the page they are shown on."""

from __future__ import annotations

import io
import re
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Style(NamedTuple):
    """How a method is drawn: shape and dashes differ where colours repeat."""

    colour: str  # a name in COLOURS
    marker: str
    dashes: str


# Okabe-Ito, safe for the colour-blind; orange and sky blue darkened to 3:1 on white. On a dark page
# the second of the two is used.
COLOURS = {
    "blue": ("#0072b2", "#56a8dc"),
    "green": ("#009e73", "#2fc79b"),
    "vermilion": ("#d55e00", "#ff8a3d"),
    "orange": ("#b87d00", "#f0b429"),
    "sky": ("#2f94cc", "#8fd0f5"),
    "purple": ("#b8578f", "#e59ac6"),
    "grey": ("#6b7280", "#9aa3b2"),
    "ink": ("#1b1f27", "#e8ebf1"),
    "rule": ("#d5d9e1", "#3a4150"),
    "paper": ("#ffffff", "#171b22"),
}
STYLES = {
    "zero_shot": Style("grey", "o", "-"),
    "moa": Style("grey", "s", "--"),
    "grpo": Style("blue", "o", "-"),
    "grpo_cascade": Style("blue", "s", "--"),
    "self_refine": Style("purple", "s", "-"),
    "plain_pair": Style("orange", "v", ":"),
    "shared_opponent": Style("orange", "o", "-"),
    "hidden_drafts": Style("orange", "D", "--"),
    "coop": Style("green", "s", "-"),
    "adv": Style("vermilion", "*", "-"),
    "margin": Style("sky", "s", "-"),
    "fixed_roles": Style("vermilion", "v", ":"),
    "tie_break": Style("vermilion", "P", "--"),
}
OTHER = Style("ink", "X", "-.")


def style(key: str) -> Style:
    """The look of a method."""
    return STYLES.get(key, OTHER)


def colour(name: str) -> str:
    """The colour on white."""
    return COLOURS[name][0]


def figure(width: float, height: float) -> Figure:
    """An empty figure that needs no display, in inches."""
    return FigureCanvasAgg(Figure(figsize=(width, height), dpi=150, layout="constrained")).figure


def tidy(axes: Axes, title: str, x: str, y: str) -> None:
    """Axes with a title to the left, light rules and no box."""
    ink, rule = colour("ink"), colour("rule")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(rule)
    axes.grid(color=rule, linewidth=0.6)
    axes.tick_params(colors=ink, labelsize=9, length=0)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=ink, parse_math=False)
    axes.set_xlabel(x, fontsize=9.5, color=ink)
    axes.set_ylabel(y, fontsize=9.5, color=ink)


def svg(drawn: Figure, prefix: str) -> str:
    """The figure as inline SVG: colours are those of the page, identifiers start with `prefix`."""
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # metadata would name addresses
    with matplotlib.rc_context({"svg.hashsalt": prefix}):
        drawn.savefig(text, format="svg", transparent=True, metadata=nothing)
    body = text.getvalue()[text.getvalue().index("<svg") :]
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)  # repeat every word that is drawn
    for name, (light, _) in COLOURS.items():
        body = body.replace(light, f"var(--{name})")
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body)
    return re.sub(r'<svg ([^>]*?)width="[^"]*" ([^>]*?)height="[^"]*"', r"<svg \1\2", body, count=1)
