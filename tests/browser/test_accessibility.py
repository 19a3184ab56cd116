"""Pages that people read, by the rules of axe-core: the documentation, results and the catalogue.

Wide and light, and narrow and dark, as on a phone; and as they are printed. Colours come from one
style sheet, so few pages of the documentation, which have every kind of element between them, are
looked at in the dark.
`make docs` comes before: `make test-browser` builds the site.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from hubbub.decoder import compare_metric
from hubbub.reporting import write_results
from stored_metrics import METRICS, Stored
from unit.decoder.test_watching import Folder

ROOT = Path(__file__).parents[2]
SITE = ROOT / "out" / "site"
WAYS: dict[str, dict[str, Any]] = {
    "wide and light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 800}},
    "narrow and dark": {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}},
}
# 404.html is the theme's own, for servers, and has no words of ours.
SITE_PAGES = sorted(
    path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if path.name != "404.html"
)


KINDS = """[...document.querySelectorAll("body *")].map(each => [each.parentElement, each].map(
    of => ["class", "style", "fill", "stroke"].map(name => of.getAttribute(name)).concat(of.tagName)
).join())"""
"""Of each element the tag, classes and own colours, and its parent's."""


@pytest.fixture(scope="module", params=WAYS)
def page(chromium: Browser, request) -> Iterator[Page]:
    context = chromium.new_context(**WAYS[request.param])
    yield context.new_page()
    context.close()


def write_pages(folder: Path) -> None:
    """Write pages of results, and a registry's catalogue."""
    for kind in ("string", "string by day", "enum", "joint"):
        metric, value, options = METRICS[kind]
        (own := folder / kind).mkdir()
        stored = Stored(own, metric, value)
        write_results(stored.decode(**options), [str(folder / f"{kind}.html")])
    compared = compare_metric(
        "theme",
        "2026-11-01",
        "2026-11-02..",
        metrics=folder / "enum" / "metrics.toml",
        store=f"sqlite:///{folder}/enum/hubbub.db",
        min_reports=100,
    )
    write_results(compared, [str(folder / "compared.html")])
    watched = Folder(folder / "watched", "days = 2\ncatch_up = 3\nleave_out = ['words']\n")
    watched.fill()
    watched.watch(code=3)
    collector = Path(sys.executable).with_name("hubbub-collector")
    registry = ROOT / "docs" / "examples" / "metrics.toml"
    asked: list[Path | str] = [collector, "catalogue", registry, "--output", folder / "catalogue"]
    subprocess.run(asked, check=True, capture_output=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """Return a folder with such pages; Playwright's own loop leaves no room for another here."""
    folder = tmp_path_factory.mktemp("results")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write_pages, folder).result()
    return folder


def violations(page: Page, path: Path, *, unfolded: bool = False) -> list[str]:
    """Return what axe-core refuses, and whether the page or a table is too wide."""
    wider = is_wider(page, path)
    cut = page.evaluate(
        "[...document.querySelectorAll('.scroll:has(> table)')].filter("
        "each => each.checkVisibility() && each.scrollWidth > each.clientWidth"
        ").map(each => each.ariaLabel + ' is cut')"
    )
    if unfolded:
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in Axe().run(page).response["violations"]
    ]
    return found + cut + ["wider than the window"] * wider


def is_wider(page: Page, path: Path) -> bool:
    page.goto(path.as_uri())
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def test_there_are_pages():
    assert len(SITE_PAGES) > 40, "make docs builds them"


@pytest.mark.parametrize("page", ["wide and light"], indirect=True)
@pytest.mark.parametrize("path", SITE_PAGES)
def test_documentation_can_be_read_by_everybody(page, path):
    assert violations(page, SITE / path) == []


@pytest.mark.parametrize("page", ["narrow and dark"], indirect=True)
def test_documentation_can_be_read_on_a_phone_in_the_dark(page):
    kinds, found = {}, {}
    for path in SITE_PAGES:
        assert not is_wider(page, SITE / path), path
        kinds[path] = set(page.evaluate(KINDS))
    left = set().union(*kinds.values())
    while left:
        path = max(kinds, key=lambda path: len(kinds[path] & left))
        left -= kinds[path]
        found[path] = violations(page, SITE / path)
    assert 5 < len(found) < len(SITE_PAGES) / 2
    assert {path: of for path, of in found.items() if of} == {}


def test_results_and_the_catalogue_can_be_read_by_everybody(page, results):
    folders = (results / "catalogue", results / "watched" / "results")
    pages = [*results.glob("*.html"), *(path for own in folders for path in own.rglob("*.html"))]
    assert len(pages) > 12
    found = {path.name: violations(page, path, unfolded=True) for path in pages}
    assert {name: of for name, of in found.items() if of} == {}


def test_results_are_printed_in_dark_on_white(chromium, results):
    page = chromium.new_page(color_scheme="dark")
    page.goto((results / "string.html").as_uri())
    page.emulate_media(media="print")
    shown = page.evaluate(
        "[document.documentElement, document.body].map(e => getComputedStyle(e).backgroundColor)"
    )
    colour = page.evaluate("getComputedStyle(document.body).color")
    assert set(shown) <= {"rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"}
    assert max(int(part) for part in colour.strip("rgb()").split(",")) < 128
    page.close()


def test_index_of_a_standing_report_fits_every_screen(chromium, results, screenshots):
    """Nothing is wider than its screen, the news is on the first, and pictures are kept."""
    index = (results / "watched" / "results" / "index.html").as_uri()
    ways = WAYS | {"print": {"color_scheme": "light", "viewport": {"width": 800, "height": 1100}}}
    for way, options in ways.items():
        context = chromium.new_context(**options)
        page = context.new_page()
        page.goto(index)
        page.emulate_media(media="print" if way == "print" else "screen")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= options["viewport"]["width"], way
        news = page.get_by_text("is new: ").first.bounding_box()
        assert news is not None
        assert news["y"] < options["viewport"]["height"], way
        page.screenshot(path=screenshots / f"watch-{way.replace(' ', '-')}.png", full_page=True)
        context.close()
