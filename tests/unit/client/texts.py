"""Write the texts that both clients must say: python -m unit.client.texts (with PYTHONPATH=tests).

Each row of texts.json is what a text is about and the text itself. They are for reading: whoever
changes a sentence reads here what it has become in every case. The JavaScript client's tests read
the same file.
"""

import datetime as dt
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factories import make_metric, make_params, registry_toml
from hubbub.client import Metric, MetricSpending, RapporParams, Registry, Report, Spending
from hubbub.client.explanations import describe_forgetting, describe_preview, explain
from hubbub.client.ledger import Verdict
from hubbub.protocol import (
    BooleanType,
    Dimension,
    EnumType,
    Field,
    JointType,
    NumberType,
    OpenStringType,
    OrdinalType,
    Subset,
    Window,
)
from unit.client.accounts import registry_of

FILE = Path(__file__).with_name("texts.json")
METRICS = {
    "values": make_metric(),
    "first value": make_metric(max_values=1),
    "periods": make_metric(period_days=30, max_periods=1200),
    "once, no permanent response": make_metric(params=make_params(f=0.0), one_time=True),
    "once, no instantaneous response": make_metric(params=make_params(p=0, q=1), one_time=True),
    "once, nearly no noise": make_metric(params=make_params(f=1e-12, p=0, q=1), one_time=True),
    "boolean": make_metric(metric_type=BooleanType()),
    "ordinal": make_metric(metric_type=OrdinalType((0.0, 10.0)), period_days=1),
    "open string": make_metric(metric_type=OpenStringType((4, 7), 64)),
    "open string, periods": make_metric(metric_type=OpenStringType((4,), 64), period_days=7),
    "joint": make_metric(
        metric_type=JointType(
            (Field("crash", EnumType(("none", "oom"))), Field("restored", BooleanType()))
        )
    ),
    "once a period": make_metric(params=make_params(f=0.0), mode="once", period_days=30),
    "once a period, no instantaneous response": make_metric(
        params=make_params(p=0, q=1), mode="once", period_days=1
    ),
    "asymmetric": make_metric(params=RapporParams(128, 2, 64, f0=0.0122, f1=0.5, p=0.265, q=0.74)),
    "set": make_metric(
        metric_type=EnumType(("light", "dark", "auto", "none")),
        response=Subset(4, 2, 0.75), mode="once", period_days=30,
    ),
    "one set for life": make_metric(
        metric_type=OrdinalType((0.0, 10.0)), response=Subset(3, 1, 0.8), one_time=True
    ),
    "number": make_metric(
        metric_type=NumberType(0.0, 60.0, 8, 4), response=Window(8, 4, 0.7311), mode="once",
        period_days=7, max_periods=1200,
    ),
    "number and its square": make_metric(
        metric_type=NumberType(0.0, 60.0, 32, 5, True), response=Window(32, 5, 0.9), one_time=True
    ),
    "dimensions": make_metric(
        dimensions=(Dimension("platform", ("mac", "windows")), Dimension("release", (), r"\d\.\d+"))
    )._replace(slice="platform=mac,release=1.2"),
}  # fmt: skip
NOTHING = Spending((), 0.0, 0.0, 0.0, None, 0)
SOMETHING = Spending(
    (MetricSpending("homepage", 1, 2, 3, 6.13, 6.13, 8.79),), 6.13, 6.13, 8.79, 20.125, 0
)
CHANGES = SOMETHING._replace(epsilon_any_history=float("inf"), restores=1)


def rows() -> Iterator[dict[str, Any]]:
    """Yield all cases."""
    for name, metric in METRICS.items():
        for verdict, refusal in _verdicts(metric):
            yield _preview(name, metric, verdict, refusal)
    for name, metric in METRICS.items():
        yield _explanation(name, [metric], NOTHING)
    several = [
        METRICS["values"],
        METRICS["periods"]._replace(name="crash"),
        METRICS["boolean"]._replace(name="restored"),
    ]
    yield _explanation("several", several, CHANGES)
    bounded = [METRICS["first value"], METRICS["boolean"]._replace(name="b", max_values=1)]
    yield _explanation("bounded", bounded, SOMETHING)
    for choice in ("life", "period"):
        of_group = [METRICS["set"]._replace(name=name) for name in ("crash", "theme")]
        yield _explanation(f"group, {choice}", of_group, NOTHING, choice)
    grouped = _parsed(METRICS["set"], METRICS["number"]._replace(name="b"), choice="life")
    yield _preview("of a group", grouped["homepage"], Verdict.NEW, None, grouped)
    for spending in (None, NOTHING, SOMETHING, CHANGES):
        yield {
            "case": "forget",
            "spending": _json(spending),
            "text": describe_forgetting(spending),
        }


def _verdicts(metric: Metric) -> list[tuple[Verdict, str | None]]:
    new = [(Verdict.NEW, None), (Verdict.NEW, "no consent")]
    if metric.one_time:
        return [*new, (Verdict.REFUSED, "already reported (one-time metric)")]
    if metric.mode == "once":
        return [*new, (Verdict.REFUSED, "already reported in this period")]
    if metric.memory == "period":
        return [*new, (Verdict.AGAIN, None)]
    return [*new, (Verdict.AGAIN, None), (Verdict.STALE, None)]


def _preview(
    name: str,
    metric: Metric,
    verdict: Verdict,
    refusal: str | None,
    registry: Registry | None = None,
) -> dict[str, Any]:
    width = metric.params.k // 8
    report = Report(metric.name, 1, metric.params.m - 1, bytes(range(1, width + 1)), metric.slice)
    choice = "" if registry is None else registry.groups[metric.group].choice
    return {
        "case": f"preview: {name}",
        "registry": _document(*(registry or {"": metric}).values(), choice=choice),
        "cohort": report.cohort,
        "bits": report.bits.hex(),
        **({"slice": report.slice} if report.slice else {}),
        "verdict": verdict.name.lower(),
        "refusal": refusal,
        "text": describe_preview(metric, report, refusal, verdict),
    }


def _explanation(
    name: str, metrics: list[Metric], spending: Spending, choice: str = ""
) -> dict[str, Any]:
    budget = spending.lifetime_epsilon
    registry = _parsed(*metrics, lifetime_epsilon=budget, choice=choice)
    return {
        "case": f"explain: {name}",
        "registry": _document(*metrics, lifetime_epsilon=budget, choice=choice),
        "spending": _json(spending),
        "text": explain(registry, spending),
    }


def _document(
    *metrics: Metric, lifetime_epsilon: float | None = None, choice: str = ""
) -> dict[str, Any]:
    """Return a registry as JSON; with a choice the metrics are a group."""
    text = registry_toml(*metrics, lifetime_epsilon=lifetime_epsilon)
    document: dict[str, Any] = tomllib.loads(text)
    if choice:
        group = {"metrics": [metric.name for metric in metrics], "choice": choice}
        document["groups"] = {"mood": group}
    read: dict[str, Any] = json.loads(json.dumps(document, default=dt.date.isoformat))
    return read


def _parsed(*metrics: Metric, lifetime_epsilon: float | None = None, choice: str = "") -> Registry:
    return registry_of(_document(*metrics, lifetime_epsilon=lifetime_epsilon, choice=choice))


def _json(spending: Spending | None) -> dict[str, Any] | None:
    """Return the JavaScript client's form, with null for what isn't bounded."""
    if spending is None:
        return None
    bounded = spending.epsilon_any_history != float("inf")
    return {
        "metrics": [metric.metric for metric in spending.metrics],
        "spent": spending.epsilon,
        "anyHistory": spending.epsilon_any_history if bounded else None,
        "committed": spending.committed,
        "lifetimeEpsilon": spending.lifetime_epsilon,
        "restores": spending.restores,
    }


def text() -> str:
    """Return the file as it should be."""
    return json.dumps(list(rows()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
