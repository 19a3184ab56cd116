"""The admin page as a person sees it: right numbers, readable anywhere, nothing from elsewhere."""

import base64
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.histories import FORGED, HOMEPAGE, HONEST, METRICS, TOKEN, config
from browser.watching import Watched
from factories import make_report, registry_toml
from hubbub.client import Batch
from hubbub.simulations import running_collector
from service.posting import post, wait_until

_PHONE, _DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
_SIZES = pytest.mark.parametrize("size", [_PHONE, _DESKTOP], ids=["phone", "desktop"])
_SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])

# Each text's contrast against the nearest ground that isn't transparent (WCAG 2.2, 1.4.3).
_CONTRASTS = """
() => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = channels(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility()) continue;
    const pair = [channels(getComputedStyle(element).color), ground(element)].map(luminance);
    found.push([text, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)]);
  }
  return found;
}
"""


@contextmanager
def opened(
    browser: Browser,
    address: str,
    size: dict[str, int] = _DESKTOP,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Watched]:
    """Open the page as someone whose browser has asked for the token."""
    context = browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme=scheme,
        http_credentials={"username": "operator", "password": TOKEN},
    )
    context.set_default_timeout(60_000)
    watched = Watched(context.new_page())
    answer = watched.page.goto(address)
    assert answer is not None
    assert answer.status == 200
    try:
        yield watched
    finally:
        context.close()


def test_person_sees_the_numbers_of_what_was_stored(chromium, history):
    with opened(chromium, history.admin) as watched:
        rows = watched.page.locator("#reports-a-day tbody tr")
        assert rows.count() == len(METRICS)
        for metric in METRICS:
            row = rows.filter(has=watched.page.get_by_role("rowheader", name=metric.name))
            numbers = row.locator("td.n").all_inner_texts()
            today, all_days = (int(numbers[i].replace(",", "")) for i in (0, 2))
            assert today % 100 == 0
            assert abs(today - history.today[metric.name]) < 100
            assert all_days == history.before[metric.name] + today
        answers = watched.page.get_by_role("table", name="How requests were answered")
        expect(answers.get_by_role("row", name=re.compile("^200 duplicate 2$"))).to_be_visible()
        expect(answers.get_by_role("row", name=re.compile("^422 unregistered 1$"))).to_be_visible()
        expect(answers.get_by_role("row", name=re.compile("^400 malformed 1$"))).to_be_visible()


def test_the_page_names_what_to_look_at(chromium, history):
    with opened(chromium, history.admin) as watched:
        verdict = watched.page.get_by_role("status")
        expect(verdict).to_contain_text("To look at")
        expect(verdict).to_contain_text(
            f"{FORGED.name}: 4 reports since the start with an improbable number of set bits."
        )
        assert "to look at" in watched.page.title()


def test_older_version_is_shown(chromium, history):
    with opened(chromium, history.admin) as watched:
        versions = watched.page.get_by_role("table", name="Every version ever declared")
        earlier = versions.get_by_role("row", name=re.compile(rf"^{HOMEPAGE.name} 1 earlier"))
        expect(earlier).to_be_visible()


@_SIZES
@_SCHEMES
def test_page_is_readable_and_keeps_to_itself(chromium, history, screenshots, size, scheme):
    with opened(chromium, history.admin, size, scheme) as watched:
        page = watched.page
        page.screenshot(path=screenshots / f"{size['width']}-{scheme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        contrasts: list[tuple[str, float]] = page.evaluate(_CONTRASTS)
        assert len(contrasts) > 60
        assert [pair for pair in contrasts if pair[1] < 4.5] == []
        assert watched.complaints == []
        assert {address for address in watched.addresses if history.admin not in address} <= {
            "data:,"
        }


def test_page_has_the_bones_that_a_screen_reader_needs(chromium, history):
    with opened(chromium, history.admin) as watched:
        page = watched.page
        assert page.locator("html").get_attribute("lang") == "en"
        for landmark in ("banner", "main", "contentinfo"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(h => +h.tagName[1])")
        assert levels[0] == 1
        assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
        assert page.locator("table").count() == page.locator("table > caption").count()
        for picture in page.locator("svg").all():
            assert picture.get_attribute("aria-hidden") or picture.get_attribute("aria-label")


def test_keyboard_reaches_everything_and_shows_where_it_is(chromium, history):
    with opened(chromium, history.admin) as watched:
        page = watched.page
        reachable = page.locator("a, summary, [tabindex='0']").count()
        seen: set[Any] = set()
        for _ in range(reachable):
            page.keyboard.press("Tab")
            where, outline = page.evaluate(
                "() => { const e = document.activeElement; const s = getComputedStyle(e);"
                " return [e.outerHTML.slice(0, 200), s.outlineStyle + s.outlineWidth]; }"
            )
            assert outline == "solid2px", where
            seen.add(where)
        assert len(seen) >= reachable / 2


def test_stranger_is_asked_for_the_token(chromium, history):
    context = chromium.new_context()
    try:
        answer = context.request.get(history.admin)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith(("Basic", "Bearer"))
        wrong = base64.b64encode(b"operator:guess").decode()
        denied = context.request.get(history.admin, headers={"Authorization": f"Basic {wrong}"})
        assert denied.status == 401
    finally:
        context.close()


def test_page_says_when_the_store_is_out_of_reach(
    chromium, postgresql, postgresql_url, tmp_path, screenshots
):
    metrics = tmp_path / "metrics.toml"
    metrics.write_text(registry_toml(), encoding="utf-8")
    with running_collector(metrics, postgresql_url, config(tmp_path)) as collector:
        admin = collector.read_admin_url()
        assert post(collector.url, Batch((make_report(bits=HONEST),))).status == 201
        with opened(chromium, admin) as watched:
            expect(watched.page.get_by_role("status")).to_contain_text("All is well")
            postgresql.stop()
            _reload_until(watched.page, "The store can't be read")
            watched.page.screenshot(path=screenshots / "store-out-of-reach.png", full_page=True)
        postgresql.start()


def _reload_until(page: Page, text: str) -> None:
    def says_so() -> bool:
        page.reload()
        return text in page.get_by_role("status").inner_text()

    wait_until(says_so)
