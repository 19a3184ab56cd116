"""HTML pages as a strict reader sees them."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

_VOID = {"meta", "link", "br", "img", "hr", "input"}
_URL = re.compile(r"(?:https?:)?//|url\(|@import|javascript:", re.IGNORECASE)
_NAMESPACE = "http://www.w3.org/2000/svg"


@dataclass
class Page(HTMLParser):
    """A page taken apart: its elements in order, their texts, and all ids.

    Every element must be closed, in the right order.
    """

    html: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of every element of a name."""
        return [attributes for name, attributes in self.elements if name == tag]


def assert_accessible(page: Page) -> None:
    """One h1, headings without jumps, charts with words, tables with headers, unique ids."""
    assert page.html.startswith("<!DOCTYPE html>")
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.texts["title"][0]) > 5
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for svg in page.all("svg"):
        assert svg["role"] == "img"
        assert set(svg["aria-labelledby"].split()) <= set(ids)
    assert len(page.all("desc")) == len(page.all("svg"))
    assert all(text.strip() for text in page.texts.get("desc", []))
    assert all(cell["scope"] in {"row", "col"} for cell in page.all("th"))
    assert len(page.texts.get("caption", [])) + len(
        [each for each in page.all("table") if each.get("class") == "facts"]
    ) == len(page.all("table"))


def assert_self_contained(page: Page) -> None:
    """Nothing is loaded from anywhere, and nothing runs."""
    names = {tag for tag, _ in page.elements}
    assert not names & {"script", "link", "iframe", "object", "embed", "img", "form", "base"}
    for _, attributes in page.elements:
        assert not {"href", "src", "xlink:href", "srcset", "style"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert not _URL.search(page.html.replace(_NAMESPACE, ""))


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours such as "#1b1f24" (WCAG 2.2, 1.4.3)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
