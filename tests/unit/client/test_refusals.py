"""Mistakes in metrics.toml, for every type of metric: each is named where it stands."""

import tomllib
from pathlib import Path

import pytest

from factories import make_metric, registry_toml
from hubbub.client import MetricError, Registry
from unit.client.types_of_metrics import CELLS, COLOURS, HASHED, OPEN_TEXT, TABS

REFUSALS = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))
ENTRIES = {
    "string": registry_toml(),
    "enum": registry_toml(make_metric(metric_type=COLOURS)),
    "ordinal": registry_toml(make_metric(metric_type=TABS)),
    "open-string": registry_toml(make_metric(metric_type=OPEN_TEXT)),
    "joint": registry_toml(make_metric(metric_type=CELLS)),
    "hashed joint": registry_toml(make_metric(metric_type=HASHED)),
}


def refused(text: str) -> str:
    with pytest.raises(MetricError) as caught:
        Registry.parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("entry", "old", "new", "message"),
    [(entry, *row) for entry, rows in REFUSALS.items() for row in rows],
)
def test_mistake_is_named_where_it_stands(entry, old, new, message):
    text = ENTRIES[entry]
    assert old in text
    assert message in refused(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("", "at least one table"),
        ("metrics = 3", "at least one table"),
        ("[metrics]", "at least one table"),
        ("[metrics]\nhomepage = 3", "metrics.homepage = 3: must be a table"),
    ],
)
def test_registry_without_metrics_is_refused(tables, message):
    assert message in refused(f'application = "a"\n{tables}')
