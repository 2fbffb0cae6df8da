"""Units after a number: which words are units, and when two of them agree."""

from __future__ import annotations

import re

_SYNONYMS = """
cm centimeter centimetre; mm millimeter millimetre; km kilometer kilometre; m meter metre; in inch inches
ft foot feet; yd yard; mi mile; g gram; kg kilogram; mg milligram; lb pound; oz ounce; ton; l liter litre
ml milliliter millilitre; gallon gal; quart; pint; cup; s sec second; min minute; h hr hour; day; week; month
year yr; dollar usd; cent; euro eur; rupee; yen; degree deg; radian rad; mph; kph kmh; n newton; j joule
w watt; v volt; hz hertz; pa pascal; k kelvin; unit; point pt; percent; people person persons; child children
man men; woman women; way; time; student; apple; mole mol; acre; hectare
""".replace("\n", ";")
_CANONICAL = {
    word: group.split()[0] for group in _SYNONYMS.split(";") if group.strip() for word in group.split()
}
# Words that make the number before them another one, or that hedge.
_NUMBER_WORDS = """
hundred thousand million billion trillion dozen score half third quarter tenth squared cubed factorial
or and not no never nor none but except unless maybe possibly perhaps plus minus times over mod modulo
is was has does less more least most approx approximately about to than if then else negative positive
infinity pi root sols this us as its yes gross pair couple tens ones twos percents basis bps base
double triple twice thrice exclusive inclusive
"""
_NEVER = set(_NUMBER_WORDS.split())
_SCALING = re.compile(
    r"(hundred|thousand|million|billion|trillion|dozen|hundredth|thousandth|th|half|halve)s?$"
)


def canonical(phrase: str) -> tuple[str, bool] | None:
    """(one spelling of a unit, whether it is a known one); None for words that are no unit."""
    words = re.findall(r"[a-zA-Z]+|\^\{?\d\}?|/", phrase.strip())
    if not words or len(words) > 6 or re.sub(r"[\s.]", "", phrase) != "".join(words):
        return None
    power, out, known = 1, [], True
    for word in words:
        lower = word.lower()
        if lower in ("square", "sq", "cubic", "cu"):
            power = 2 if lower.startswith("s") else 3
        elif word[0] == "^":
            power = int(re.sub(r"\D", "", word))
        elif lower in ("per", "/", "an", "a", "each", "of", "the"):
            out += ["/"] if lower in ("per", "/") else []
        elif {lower, lower.removesuffix("s")} & _NEVER or _SCALING.search(lower):
            return None
        else:
            name = _CANONICAL.get(lower) or _CANONICAL.get(lower.removesuffix("s"))
            known &= name is not None
            out.append(name or lower.removesuffix("s"))
            if name is None and (len(lower) < 4 or not lower.endswith("s")):
                out[-1] += "?"  # perhaps no unit at all
    if not out or power > 3:
        return None
    unit = " ".join(out) + (f"^{power}" if power > 1 else "")
    return unit, known


def agree(gold: str | None, answer: str | None) -> bool:
    """A missing unit is forgiven, another one is not. Doubtful words count only if the gold has them."""
    if gold is None:
        return answer is None or "?" not in answer
    return answer is None or gold == answer
