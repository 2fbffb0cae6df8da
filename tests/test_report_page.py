"""The web page: self-contained, whole, and deaf to whatever a model wrote."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import fake_results
import pytest

from agon_jax.report import compare, page, schema
from agon_jax.report.compare import comparisons

HOSTILE = (
    '</script><script>alert(1)</script><!-- <script> --> <img src=x onerror="alert(1)"> {{ 7 * 7 }} '
    "{% raw %} &lt;b&gt; ' \" \u2028 \u2029 \x00 ]]> </style></textarea>"
)
VOID = {"meta", "link", "input", "br", "img", "hr"}


class Document(HTMLParser):
    """Elements with attributes and text, as a browser would see them."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost tag, text
        self.open: list[str] = []
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def handle_comment(self, data):
        self.comments.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def inside(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def record(step: int = 3, text: str = "<think>a</think>b", **fields: object) -> dict:
    side = {
        "policy": "a", "text": text, "summary": "b", "answer": "1", "reference": "1", "correct": True,
        "verdict": "equal", "well_formed": True, "finished": True, "reward": 2.5, "advantage": 0.5,
    }  # fmt: skip
    return {"step": step, "problem": "1 = 1", "draft": side | fields, "challenge": side | fields}


@pytest.fixture(scope="module")
def results() -> dict:
    skill = {key: fake_results.SKILL[key] for key in ("grpo", "coop", "adv")}
    return fake_results.few_curves(fake_results.make(skill, problems=20, steps=6))


@pytest.fixture(scope="module")
def bare(results: dict) -> dict:
    """The same with one figure alone."""
    return fake_results.without_curves(copy.deepcopy(results))


@pytest.fixture(scope="module")
def html(results: dict) -> str:
    return page.render(results, comparisons(results), {"adv": [record(), record(4)], "grpo": [record()]})


@pytest.fixture(scope="module")
def document(html: str) -> Document:
    return Document(html)


def test_nothing_is_fetched(document: Document) -> None:
    for tag, attributes in document.elements:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            target = attributes.get(name) or ""
            assert target.startswith(("#", "data:")) or not target, (tag, name, target)
    for css in [*document.inside("style"), *(each.get("style") or "" for _, each in document.elements)]:
        assert "@import" not in css and not re.search(r"url\((?!#)", css)
    assert not {"iframe", "object", "embed", "base"} & {tag for tag, _ in document.elements}


def test_the_policy_allows_the_one_script_by_its_hash(document: Document) -> None:
    policy = next(
        m["content"] for m in document.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';") and "script-src 'sha256-" in policy
    scripts = document.inside("script")
    assert [each.get("type") for each in document.all("script")] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert not any(name.startswith("on") for _, attributes in document.elements for name in attributes)


def test_the_script_writes_text_only() -> None:
    script = (page._HERE / "page.js").read_text()
    assert "textContent" in script
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "srcdoc",
    ):
        assert way not in script


def test_the_answer_comes_first_and_every_method_is_named(results: dict, document: Document) -> None:
    headings = [text for tag, text in document.texts if tag in ("h1", "h2")]
    assert headings == [
        results["title"], "The answer in a minute", "Comparisons", "Methods", "Training", "Transcripts",
    ]  # fmt: skip
    rows = document.inside("th")
    for method in results["methods"].values():
        assert method["name"] in rows
    words = " ".join(text for _, text in document.texts)
    for each in comparisons(results):
        assert each.claim in words and each.badge in words
    assert "Not answered: no run of GRPO with two passes." in words


def test_identifiers_are_unique_and_found(document: Document) -> None:
    names = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for _, attributes in document.elements:
        for name in ("aria-labelledby", "for"):
            assert attributes.get(name) is None or attributes[name] in names
        for name in ("href", "xlink:href"):
            target = attributes.get(name) or ""
            assert not target.startswith("#") or target[1:] in names
    script = (page._HERE / "page.js").read_text()
    assert set(re.findall(r'find\("([\w-]+)"\)', script)) <= set(names)


def test_every_plot_has_words(document: Document) -> None:
    labels = [each["aria-label"] for each in document.all("div") if each.get("role") == "img"]
    assert len(labels) == len(document.all("svg")) == 1 + 3 + 3  # accuracy, curves, evaluations
    accuracy = next(label for label in labels if label.startswith("Accuracy against length"))
    assert "Agon" in accuracy and "tokens" in accuracy


def test_plots_follow_the_colours_of_the_page(html: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.S))
    assert "var(--vermilion)" in drawings and "var(--ink)" in drawings
    assert not re.findall(r"#[0-9a-f]{6}\b", drawings)  # a fixed colour might vanish on a dark page


def test_transcripts_arrive_as_they_were(bare: dict) -> None:
    sent = [record(text=HOSTILE, answer=None, advantage=float("nan"))]
    plain = {"name": "Plain pair", "exchange": False, "members": []}
    bare = bare | {"methods": bare["methods"] | {"plain_pair": plain}}
    document = Document(page.render(bare, [], {"adv": sent, "plain_pair": [record()]}))
    data = json.loads(document.inside("script")[0], parse_constant=pytest.fail)  # JSON has no NaN
    assert data[0]["name"] == "Agon" and data[0]["shown"] and not data[1]["shown"]
    assert data[0]["records"][0]["draft"]["text"] == HOSTILE
    assert data[0]["records"][0]["challenge"]["advantage"] is None


def test_hostile_strings_make_no_elements(bare: dict) -> None:
    plain = Document(page.render(bare, comparisons(bare), {"adv": [record()]}))
    hostile = copy.deepcopy(bare)
    hostile |= {"title": HOSTILE, "world": HOSTILE, "config_hash": HOSTILE}
    hostile["methods"]["adv"]["name"] = HOSTILE.replace("\x00", "")  # fonts have no such glyph
    for member in hostile["methods"]["adv"]["members"]:
        for row in member["rows"]:
            row["name"] += HOSTILE
    fields = dict.fromkeys(("text", "summary", "answer", "reference", "verdict", "policy"), HOSTILE)
    one = record() | {"problem": HOSTILE, "draft": record(**fields)["draft"]}
    text = page.render(hostile, comparisons(hostile), {"adv": [one], HOSTILE: [one]})
    document = Document(text)
    drawn = {"path", "g", "use", "defs", "clippath", "rect"}  # letters
    skeleton = lambda each: [tag for tag, _ in each.elements if tag not in drawn]
    assert skeleton(document) == skeleton(plain)
    assert not document.comments and "alert(1)" in "".join(document.inside("h1"))
    assert "49" not in document.inside("h1")[0]  # {{ 7 * 7 }} is no template
    json_block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.S)[1]
    assert "<" not in json_block and json.loads(json_block)[0]["records"][0]["problem"] == HOSTILE


def test_pages_without_transcripts_have_no_browser(bare: dict) -> None:
    document = Document(page.render(bare, comparisons(bare)))
    assert "Transcripts" not in document.inside("h2") and "Transcripts" not in document.inside("a")
    assert len(document.all("script")) == 1


def test_the_forest_keeps_its_scale_when_an_interval_is_huge(results: dict) -> None:
    found = comparisons(results)
    narrow = [
        dataclasses.replace(each, effect=0.02, low=-0.01, high=0.05, wide=(0.0, 0.04)) for each in found
    ]
    huge = dataclasses.replace(narrow[0], low=-0.9, high=0.94)
    forest = page._forest([*narrow, huge])
    # Effects of 2 points: the axis reaches 5, or the next round number, 6; not 94.
    assert forest["ticks"][3] == (100, "+6")
    rows = forest["rows"]
    assert rows[-1]["cut_low"] and rows[-1]["cut_high"] and not rows[0]["cut_low"]
    assert rows[0]["effect"] == pytest.approx(50 + 50 * 2 / 6)
    assert page._forest([])["rows"] == []


def test_what_training_brings_does_not_set_the_scale(results: dict) -> None:
    """32 points over zero-shot beside effects of 2: on an axis to 40, two points would be a 20th of it."""
    found = comparisons(results)
    small = [dataclasses.replace(each, effect=0.02, low=0.01, high=0.03, wide=(0.0, 0.04)) for each in found]
    pair = compare.Pair("grpo", "zero_shot", "What does training bring?")
    large = dataclasses.replace(small[0], pair=pair, effect=0.32, low=0.3, high=0.34, wide=(0.29, 0.35))
    trained = [each for each in small if each.pair.second != "zero_shot"]
    forest = page._forest([*trained, large])
    assert forest["ticks"][3] == (100, "+4")
    assert forest["rows"][-1]["off"] and not forest["rows"][0]["off"]
    assert page._forest([large])["ticks"][3] == (100, "+40")  # alone it is shown whole


def test_untrained_methods_are_known() -> None:
    assert set(schema.ORDER) >= schema.UNTRAINED
