"""The registry as browsers load it: the same entries, read alike by the JavaScript client."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from factories import make_metric, make_params, registry_toml
from hubbub.client import Metric, RapporParams, Registry
from hubbub.protocol import (
    BooleanType,
    Dimension,
    EnumType,
    Field,
    JointType,
    NumberType,
    OpenStringType,
    OrdinalType,
    StringType,
    Subset,
    Window,
    main,
)
from unit.javascript.node import CLIENT, run_node

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"
# Prints what both sides must agree on, as JavaScript reads it.
READ = """
import { readFileSync } from "node:fs";
const { makeRegistry } = await import(process.argv[2]);
const registry = makeRegistry(JSON.parse(readFileSync(0, "utf8")));
const metrics = [...registry.metrics.values()].map((m) => [m.name, {
  version: m.version, type: m.type.name, mode: m.mode, memory: m.memory, days: m.periodDays,
  answers: m.maxAnswers, description: m.description, owner: m.owner, expires: m.expires,
  params: m.params, type_definition: m.type.definition,
  response: m.response.definition, group: m.group && Object.values(m.group),
  dimensions: m.dimensions.map(Object.values), minReports: m.minReports,
}]);
const { application, lifetimeEpsilon } = registry;
console.log(JSON.stringify({ application, lifetimeEpsilon, metrics: Object.fromEntries(metrics) }));
"""


def as_python_reads_it(registry: Registry) -> dict[str, object]:
    return {
        "application": registry.application,
        "lifetimeEpsilon": registry.lifetime_epsilon,
        "metrics": {
            name: {
                "version": metric.version,
                "type": metric.type.name,
                "mode": metric.mode,
                "memory": metric.memory,
                "days": metric.period_days,
                "answers": metric.max_answers,
                "description": metric.description,
                "owner": metric.owner,
                "expires": metric.expires.isoformat(),
                "params": dict(zip(metric.params._fields, metric.params, strict=True)),
                "type_definition": metric.type.definition(),
                "response": metric.response.definition(),
                "group": group_of(registry, metric),
                "dimensions": [
                    [told.name, list(told.values), told.pattern] for told in metric.dimensions
                ],
                "minReports": metric.min_reports,
            }
            for name, metric in registry.items()
        },
    }


def group_of(registry: Registry, metric: Metric) -> list[object] | None:
    group = registry.groups.get(metric.group)
    return None if group is None else [group.name, list(group.metrics), group.choice]


def write(folder: Path, text: str) -> Path:
    path = folder / "metrics.toml"
    path.write_text(text, encoding="utf-8")
    return path


SNACK = Field("snack", EnumType(("Käse", "→"), other=True))
ODD = registry_toml(
    make_metric("snack", metric_type=EnumType(("Käse", "→", '"quoted"'))),
    make_metric("size", metric_type=OrdinalType((-1e-300, 0.1, 2.0**53, 1e300)), period_days=7),
    make_metric("meal", metric_type=EnumType(("Käse",), other=True)),
    make_metric("cells", metric_type=JointType((SNACK, Field("late", BooleanType())))),
    make_metric(
        "hashed",
        metric_type=JointType((SNACK, Field("size", OrdinalType((0.1, 1.0, 2.5)))), hashed=True),
        params=make_params(k=8, h=1, m=3),
    ),
    make_metric("shop", metric_type=JointType((Field("shop", StringType()), SNACK))),
    make_metric(
        "set",
        metric_type=EnumType(("a", "b", "c")),
        response=Subset(3, 2, 0.9),
        mode="once",
        period_days=30,
        max_periods=7,
    ),
    make_metric(
        "bit", metric_type=BooleanType(), params=make_params(f=0.0), mode="once", period_days=1
    ),
    make_metric(
        "mean",
        metric_type=NumberType(-0.5, 1e300, 9, 4, variance=True),
        response=Window(9, 4, 0.7),
        one_time=True,
    ),
    make_metric("uneven", params=RapporParams(8, 1, 1, f0=0.1, f1=0.3, p=0.25, q=0.75)),
    make_metric("words", metric_type=OpenStringType((1, 2, 64), 16_383)),
    make_metric(
        "told",
        dimensions=(
            Dimension("platform", ("mac", "_9.-")),
            Dimension("release", (), r"\d\.[a-c]?"),
        ),
    )._replace(min_reports=77),
    lifetime_epsilon=1000.5,
)


@pytest.mark.parametrize("text", [EXAMPLE.read_text(encoding="utf-8"), ODD], ids=["example", "odd"])
def test_javascript_reads_the_registry_that_python_reads(text, tmp_path):
    source, made = write(tmp_path, text), tmp_path / "metrics.json"
    assert main([str(source), "-o", str(made)]) == 0
    program = tmp_path / "read.mjs"
    program.write_text(READ, encoding="utf-8")
    module = (CLIENT / "src" / "registry.js").as_uri()
    done = run_node(program, module, stdin=made.read_text(encoding="ascii"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == as_python_reads_it(Registry.load(source))


def test_command_prints_the_entries_of_the_file_with_days_as_text(tmp_path):
    source = write(
        tmp_path, registry_toml(make_metric("theme", metric_type=EnumType(("light", "dark"))))
    )
    command = [sys.executable, "-m", "hubbub.protocol.registry", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    entry = json.loads(done.stdout)["metrics"]["theme"]
    assert entry["expires"] == "2099-12-31"
    assert entry["categories"] == ["light", "dark"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("application = 1", "application = 1: must be a text"),
        ("[", "not valid TOML"),
        (registry_toml().replace("f = 0.5", "f = 1.5"), "metrics.homepage.f = 1.5"),
    ],
)
def test_registry_that_is_refused_is_not_written(text, fault, tmp_path, capsys):
    made = tmp_path / "metrics.json"
    assert main([str(write(tmp_path, text)), "-o", str(made)]) == 1
    output, errors = capsys.readouterr()
    assert (output, made.exists()) == ("", False)
    assert fault in errors


@pytest.mark.parametrize("missing", ["source", "folder"])
def test_file_that_cannot_be_read_or_written_is_named(missing, tmp_path, capsys):
    source = write(tmp_path, registry_toml())
    if missing == "source":
        source.unlink()
    assert main([str(source), "--output", str(tmp_path / "none" / "metrics.json")]) == 1
    assert str(tmp_path) in capsys.readouterr().err
