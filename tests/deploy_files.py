"""Readers of the examples in docs/deploy, for the tests that compare them with the collector."""

import json
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from hubbub.collector import Metrics, Publisher

FOLDER = Path(__file__).parents[1] / "docs" / "deploy"
PLACEHOLDERS = {
    "store": "postgresql://hubbub:open-sesame@postgresql/hubbub",
    "browser-sha256": "a" * 64,
    "prometheus-sha256": "b" * 64,
}
"""What the Kubernetes Secret could hold."""


class Instruction(NamedTuple):
    """One instruction of the Dockerfile, its lines joined."""

    word: str
    rest: str

    @property
    def command(self) -> Any:
        """What it runs, if it is in the exec form."""
        return json.loads(self.rest[self.rest.index("[") :])


def dockerfile() -> list[Instruction]:
    """Return the instructions, with the arguments that have a default filled in."""
    text = re.sub(r"\\\n\s*", "", (FOLDER / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    defaults = dict(line.removeprefix("ARG ").split("=") for line in lines if line[:4] == "ARG ")
    for name, default in defaults.items():
        lines = [line.replace(f"${{{name}}}", default) for line in lines]
    return [Instruction(*line.split(maxsplit=1)) for line in lines]


def unit() -> dict[str, list[str]]:
    """Return the values of each directive of the systemd unit, as "Section.Name"."""
    directives: dict[str, list[str]] = {}
    section = ""
    for line in (FOLDER / "hubbub-collector.service").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, value = line.split("=", 1)
            directives.setdefault(f"{section}.{name}", []).append(value)
    return directives


def kubernetes() -> dict[str, Any]:
    """Return the objects by their kind, of which each is there once."""
    objects = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    by_kind = {item["kind"]: item for item in objects}
    assert len(by_kind) == len(objects)
    return by_kind


def pod() -> Any:
    """Return the specification of the Deployment's pods."""
    return kubernetes()["Deployment"]["spec"]["template"]["spec"]


def pod_environment() -> Mapping[str, str]:
    """Return a pod's variables, with a Secret that could be."""
    (container,) = pod()["containers"]
    return {
        variable["name"]: PLACEHOLDERS[variable["valueFrom"]["secretKeyRef"]["key"]]
        for variable in container["env"]
    }


def decoder_objects() -> dict[str, Any]:
    """Return the objects of kubernetes-decoder.yaml by their name and kind."""
    objects = list(yaml.safe_load_all((FOLDER / "kubernetes-decoder.yaml").read_text()))
    by_name = {f"{item['kind']} {item['metadata']['name']}": item for item in objects}
    assert len(by_name) == len(objects)
    return by_name


def decoder_pods() -> dict[str, Any]:
    """Return the specifications of that file's pods by the name of what makes them."""
    found = {}
    for item in decoder_objects().values():
        if item["kind"] in {"CronJob", "Deployment"}:
            spec = item["spec"]
            spec = spec["jobTemplate"]["spec"] if item["kind"] == "CronJob" else spec
            found[item["metadata"]["name"]] = spec["template"]["spec"]
    return found


def commands_of(name: str) -> list[str]:
    """Return all words of the command that a pod of the decoder's file runs."""
    (container,) = decoder_pods()[name]["containers"]
    (entry,) = [i.command for i in dockerfile() if i.word == "ENTRYPOINT"]
    return [*container.get("command", entry), *container["args"]]


def alerts() -> list[Any]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    """Return the names of the metrics of ours in an alert's expression."""
    return set(re.findall(r"\bhubbub_\w+", expression))


def series_in(exposition: str) -> dict[str, str]:
    """Return the series of ours that /metrics tells, and their values."""
    lines = exposition.splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line.startswith("hubbub_"))


def labels_of(series: str) -> dict[str, str]:
    name, _, labels = series.partition("{")
    return {"__name__": name, **dict(re.findall(r'(\w+)="([^"]*)"', labels))}


def missing_series(expression: str, there: Iterable[str]) -> list[str]:
    """Return the selectors of an alert's expression that select none of some series."""
    known = [labels_of(series) for series in there]
    compare: dict[str, Callable[[str, str], bool]] = {
        "=": operator.eq,
        "!=": operator.ne,
        "=~": lambda value, pattern: re.fullmatch(pattern, value) is not None,
        "!~": lambda value, pattern: re.fullmatch(pattern, value) is None,
    }
    missing = []
    for found in re.finditer(r"\b(hubbub_\w+)(?:\{([^}]*)\})?", expression):
        wanted = [("__name__", "=", found[1])]
        wanted += re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', found[2] or "")
        if not any(
            all(compare[sign](labels.get(name, ""), value) for name, sign, value in wanted)
            for labels in known
        ):
            missing.append(found[0])
    return missing


def exposed_names() -> set[str]:
    """Return the names under which Prometheus keeps what /metrics tells."""
    body, _ = Publisher(Metrics()).exposition()
    types = re.findall(r"^# TYPE (\w+) (\w+)$", body.decode(), re.MULTILINE)
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + end for name, kind in types for end in parts.get(kind, ("",))}


def guide() -> str:
    """Return the pages that say how to use the examples."""
    pages = ("deploy.md", "engines.md")
    return "\n".join((FOLDER.parent / "do" / name).read_text() for name in pages)


def commands() -> list[list[str]]:
    """Return what follows `hubbub-collector` wherever the examples run it."""
    (container,) = pod()["containers"]
    entry = {i.word: i.command for i in dockerfile() if i.word in {"ENTRYPOINT", "CMD"}}
    found = [container["args"], entry["CMD"], shlex.split(unit()["Service.ExecStart"][0])[1:]]
    text = guide().replace("\\\n", " ")
    told = re.findall(r"hubbub-collector ((?:serve|token|export) [^`)\n]*)", text)
    return found + [shlex.split(command) for command in told]
