"""`hubbub-collector catalogue`: pages that users, reviewers and data protection can read."""

import base64
import datetime as dt
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from factories import make_metric, make_params, make_registry, registry_toml
from hubbub.collector import main
from hubbub.planning import INDEX, pages
from hubbub.protocol import (
    METRIC_TYPES,
    BooleanType,
    EnumType,
    OpenStringType,
    OrdinalType,
    Registry,
)
from unit.client.types_of_metrics import CELLS, HASHED

_HOSTILE = "<script>alert('1')</script>\"&\u202e\u0007"
ROOT = Path(__file__).parents[3]
_TODAY = dt.date(2027, 3, 14)
_TYPES = [
    None,
    EnumType(("light", _HOSTILE), other=True),
    BooleanType(),
    OrdinalType((1.0, 2.5)),
    OpenStringType((2, 4), 8),
    CELLS,
    HASHED,
]


class _Reader(HTMLParser):
    """Collects what a browser would find on a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.words, self.attributes = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value for name, value in attrs if name in {"href", "src"}]

    def handle_data(self, data):
        self.words.append(data)


def run(tmp_path, *texts):
    files = []
    for i, text in enumerate(texts):
        files.append(str(tmp_path / f"{i}.toml"))
        (tmp_path / f"{i}.toml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["catalogue", *files, "--output", str(tmp_path / "site")])
    assert result.exit_code == 0, result.output
    return {path.name: path.read_text("utf-8") for path in (tmp_path / "site").iterdir()}


def hostile():
    """Return a registry with a metric of each type, whose texts mean harm."""
    metrics = [make_metric(f"m{i}", metric_type=each) for i, each in enumerate(_TYPES)]
    text = registry_toml(*metrics)
    shown = json.dumps(_HOSTILE).replace("\\u202e", "\u202e")
    text = re.sub(r"(description|owner) = .*", lambda it: f"{it[1]} = {shown}", text)
    return re.sub(r'application = ".*"', lambda _: f"application = {shown}", text)


def test_pages_are_whole_need_nothing_and_run_nothing_whatever_texts_hold(tmp_path):
    found = run(tmp_path, hostile())
    assert found.keys() == {INDEX, *(f"m{i}.html" for i in range(len(_TYPES)))}
    for text in found.values():
        page = _Reader(text)
        assert not {"script", "iframe", "img", "link", "form"} & set(page.tags)
        assert not any(name.startswith("on") for name in page.attributes)
        assert set(page.links) <= found.keys()
        assert not re.search(r"url\(|@import|https?:", text)
        assert "alert('1')" in "".join(page.words)
        assert "\u202e" not in text
        assert "\u0007" not in text


@pytest.mark.parametrize("place", range(len(_TYPES)))
@pytest.mark.parametrize("mode", ["longitudinal", "once"])
def test_example_is_a_report_as_clients_send_it(place, mode):
    metric = make_metric("theme", metric_type=_TYPES[place])
    if mode == "once":
        noise = {"params": metric.params._replace(f=0.0), "period_days": 30, "mode": mode}
        metric = make_metric("theme", metric_type=_TYPES[place], **noise)
    registry = make_registry(metric)
    page = pages([registry], _TODAY)["theme.html"]
    (sent,) = [each for each in page.sections if each.title == "What leaves a device"]
    (report,) = json.loads((sent.facts or {})["a device could send"])["reports"]
    assert (report["metric"], report["version"]) == ("theme", 1)
    assert report["cohort"] in range(metric.params.m)
    assert len(base64.b64decode(report["bits"])) == metric.params.k // 8
    assert pages([registry], _TODAY)["theme.html"] == page


def test_figures_are_those_of_the_metric(tmp_path):
    metric = make_metric("theme")
    text = html.unescape(run(tmp_path, registry_toml(metric))["theme.html"])
    assert f"epsilon {metric.epsilon_report:.4g}, a factor of" in text
    assert f"all reports of an answer: epsilon {metric.epsilon_permanent:.4g}" in text
    assert "theorem 2" in text
    assert "without a bound" in text  # of what a change shows


def test_metrics_with_max_periods_are_called_bounded():
    once = make_metric("theme", params=make_params(f=0.0), mode="once", period_days=30)
    text = pages([make_registry(once)], _TODAY)[INDEX].headline
    assert f"spends at most epsilon {100 * once.epsilon_report:.4g} over all of them." in text
    capped = make_registry(once, lifetime_epsilon=5.0)
    assert "at most epsilon 5 over all of them." in pages([capped], _TODAY)[INDEX].headline


def test_history_has_all_versions_and_what_is_gone(tmp_path):
    old = registry_toml(make_metric("theme"), make_metric("left"))
    other = make_metric("theme", version=2, params=make_metric().params._replace(f=0.25))
    found = run(tmp_path, old, registry_toml(other))
    assert re.findall(r'<th scope="row">(\d)</th>', found["theme.html"]) == ["2", "1"]
    assert "It isn&#39;t asked any more." in found["left.html"]
    assert ">gone</td>" in found[INDEX]


def test_all_types_of_the_example_have_an_example():
    registry = Registry.load(ROOT / "docs" / "examples" / "metrics.toml")
    found = pages([registry], _TODAY)
    assert len(found) == len(registry) + 1
    assert {each.type.name for each in registry.values()} == METRIC_TYPES.keys()
    for name in registry:
        (sent,) = [
            it for it in found[f"{name}.html"].sections if it.title.startswith("What leaves")
        ]
        assert "a device could send" in (sent.facts or {})


def test_init_without_a_terminal_names_the_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["init", "--application", "com.example.app"], input="")
    assert result.exit_code == 2
    assert "--name isn't given, and standard input has no answer" in result.stderr
    assert not list(tmp_path.iterdir())
