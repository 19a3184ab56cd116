"""The metrics of an application as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file, and refuse every entry that they don't know.
Browsers load it as JSON: ``python -m hubbub.protocol.registry metrics.toml``.
Invariant: what a metric's reports mean never changes under the same version, because reports drawn
in different ways can't be separated afterwards; `check_compatible` is the guard.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hubbub.protocol import checks as check, keys
from hubbub.protocol.dimensions import (
    MIN_REPORTS,
    OTHER,
    Dimension,
    check_combinations,
    read_dimensions,
    slice_of,
)
from hubbub.protocol.errors import MetricError, ParameterError, UnknownMetricError
from hubbub.protocol.metric_types import METRIC_TYPES
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metric_types.one_hot import BooleanType, NumberType
from hubbub.protocol.metrics import (
    MAX_PERIODS,
    MAX_VALUES,
    UNARY,
    Memory,
    Metric,
    Mode,
    Response,
    Subset,
    Window,
)
from hubbub.protocol.params import RapporParams

if TYPE_CHECKING:
    from pathlib import Path


class Group(NamedTuple):
    """Metrics of which each client answers one, so that a client spends what that one costs."""

    name: str
    metrics: tuple[str, ...]  # at least two
    # Whether a client's metric stays the same, or is chosen for each period. Then the metrics
    # have one `max_periods` together.
    choice: str


class Registry(Mapping[str, Metric]):
    """The metrics of one application, by name; read-only.

    Parameters
    ----------
    application : str
    metrics : mapping of str to Metric
    lifetime_epsilon : float, optional
        What a client may spend in its life, over all metrics; None: no bound but `max_values`.
    groups : iterable of Group
        Each metric of the registry is in one at most.
    dimensions : iterable of Dimension
        Facts that an app may state about itself; those of its metrics, and others.

    Attributes
    ----------
    groups : dict of str to Group
    dimensions : dict of str to Dimension

    Examples
    --------
    >>> registry = Registry.load("metrics.toml")
    >>> registry["theme"].type.name, round(registry["theme"].epsilon_report, 2)
    ('enum', 1.02)
    """

    __slots__ = ("_metrics", "application", "dimensions", "groups", "lifetime_epsilon")

    def __init__(
        self,
        application: str,
        metrics: Mapping[str, Metric],
        lifetime_epsilon: float | None = None,
        groups: Iterable[Group] = (),
        dimensions: Iterable[Dimension] = (),
    ) -> None:
        self.application = application
        self.dimensions = {dimension.name: dimension for dimension in dimensions}
        self.lifetime_epsilon = lifetime_epsilon
        self.groups = {group.name: group for group in groups}
        group_of = {name: group.name for group in self.groups.values() for name in group.metrics}
        self._metrics = {
            name: metric._replace(group=group_of.get(name, "")) for name, metric in metrics.items()
        }

    @classmethod
    def load(cls, path: str | Path) -> Registry:
        """Read metrics.toml.

        Raises
        ------
        MetricError
            If the file can't be read, isn't TOML, or entries are wrong: the message says where,
            and `faults` has each of them.
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8-sig")  # editors on Windows add a mark
        except OSError as error:
            raise MetricError(f"{path}: can't be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise MetricError(f"{path}: must be UTF-8 text: {error}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, file: str = "metrics.toml") -> Registry:
        """Read a registry from the text of a metrics.toml (raises as `load`).

        Parameters
        ----------
        text : str
        file : str
            Its name, for the message if it isn't TOML.
        """
        import tomllib

        try:
            document = tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, or of an integer with thousands of digits
            raise MetricError(f"{file}: not valid TOML: {error}") from error
        faults = check.Faults()
        with faults.collected():
            keys.check_file(document, file)
        application, budget = document.get("application", ""), document.get("lifetime_epsilon")
        tables, of_groups = (
            found if isinstance(found := document.get(key), dict) else {}
            for key in ("metrics", "groups")
        )
        declared = document.get("dimensions")
        declared = declared if isinstance(declared, dict) else {}
        dimensions = {each: Dimension(each) for each in declared}
        for each, value in declared.items():
            with suppress(MetricError):  # which was found above
                dimensions |= read_dimensions("dimensions", {each: value})
        metrics = {}
        for name, table in tables.items():
            with faults.collected():
                metrics[name] = _read_metric(application, name, table, dimensions)
        groups = _groups(of_groups, metrics, tables, faults)
        faults.raise_found()
        limit = None if budget is None else float(budget)
        return cls(application, metrics, limit, groups, dimensions.values())

    def with_dimensions(self, values: Mapping[str, str], *, strict: bool = False) -> Registry:
        """Return the registry of an app whose reports carry these facts (MetricError).

        `values`: by dimension; one that is left out or isn't listed is "other", or `strict` refuses
        it.
        """
        if not values:
            return self
        for name, value in values.items():
            if name not in self.dimensions:
                named = ", ".join(self.dimensions) or "left out, as metrics.toml has none"
                raise MetricError.of("dimensions", name, f"one of: {named}")
            dimension = self.dimensions[name]
            if not isinstance(value, str) or (
                strict and value != OTHER and not dimension.has(value)
            ):
                raise MetricError.of(f"dimensions.{name}", value, dimension.words)
        metrics = {
            name: metric._replace(slice=slice_of(metric.dimensions, values))
            for name, metric in self._metrics.items()
        }
        return Registry(
            self.application,
            metrics,
            self.lifetime_epsilon,
            self.groups.values(),
            self.dimensions.values(),
        )

    def reserve(self, without: Collection[str] = ()) -> float:
        """Return what a client spends at most if only times decide; of a group the dearest."""
        reserves: dict[str, list[float]] = {}
        for name, metric in self._metrics.items():
            if name not in without:
                # No metric's name has a blank, so this is no group's.
                reserves.setdefault(metric.group or f"metric {name}", []).append(metric.reserve)
        return math.fsum(map(max, reserves.values()))

    def shares_periods(self, metric: Metric) -> tuple[str, ...]:
        """Return the metrics that have periods, and one `max_periods`, together with a metric."""
        group = self.groups.get(metric.group)
        return group.metrics if group and group.choice == "period" else (metric.name,)

    def __getitem__(self, name: str) -> Metric:
        try:
            return self._metrics[name]
        except KeyError:
            known = ", ".join(sorted(self._metrics))
            raise UnknownMetricError(f"metric {name!r}: must be one of: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


def check_compatible(old: Registry, new: Registry) -> None:
    """Refuse a registry that changes what an existing version means (MetricError).

    All such changes are named. Refused are another application, a version that goes down, a
    definition that changed under its version, a renamed group with a choice for life, and a
    `lifetime_epsilon` that leaves less for changed answers than before: what clients spent on these
    already would then decide whether they answer new questions.
    """
    faults = check.Faults()

    def refuse(field: str, message: str) -> None:
        faults.found.append(MetricError.about(field, f"{field}{message}"))

    if old.application != new.application:
        refuse(
            "application",
            f" = {new.application!r}: must stay {old.application!r}, because every client's "
            "permanent responses depend on it",
        )
    if old.lifetime_epsilon is not None and new.lifetime_epsilon is not None:
        still = {(metric.name, metric.version) for metric in new.values()}
        gone = [m.reserve for m in old.values() if (m.name, m.version) not in still]
        needed = math.fsum([*gone, new.reserve(), old.lifetime_epsilon, -old.reserve()])
        if new.lifetime_epsilon < needed * (1 - 1e-9):
            refuse(
                "lifetime_epsilon",
                f" = {new.lifetime_epsilon}: must be at least {needed:.6g}, which adds the price "
                "of each new metric and version, so that clients' silence doesn't depend on how "
                "often their answers changed",
            )
    for name in (name for name in new if name in old):
        before, after = old[name], new[name]
        was, now = old.groups.get(before.group), new.groups.get(after.group)
        if was and now and was.name != now.name and was.choice == now.choice == "life":
            refuse(
                f"groups.{now.name}",
                f": must be named {was.name!r} while it holds {name!r}: clients draw their choice "
                "for life with this name, and many that have answered would fall silent",
            )
        if after.version < before.version:
            refuse(
                f"metrics.{name}.version",
                f" = {after.version}: must be at least {before.version}; what version "
                f"{after.version} was can come back as version {before.version + 1}",
            )
        elif after.version == before.version and after.definition != before.definition:
            (key, words), *others = describe_changes(before.definition, after.definition).items()
            changed = "; ".join([words, *(f"{other} {its}" for other, its in others)])
            refuse(
                f"metrics.{name}.{key}",
                f": changed {changed}; version must be greater than {before.version}",
            )
    faults.raise_found()


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return what differs between two definitions of a metric, in words, by key."""
    changes: dict[str, str] = {}
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        if was == now:
            continue
        words = f"from {was} to {now}"
        if isinstance(was, list) and isinstance(now, list):
            lost, gained = ([it for it in a if it not in b] for a, b in ((was, now), (now, was)))
            parts = {"without": lost, "with": gained}
            words = (
                ", ".join(
                    f"{word} {', '.join(map(repr, some))}" for word, some in parts.items() if some
                )
                or f"in order: {words}"
            )
        changes[key] = words
    return changes


def _read_metric(
    application: str, name: str, table: Any, dimensions: Mapping[str, Dimension]
) -> Metric:
    """Return a metric, or raise what is wrong with its keys, or with several of them together."""
    where, faults = f"metrics.{name}", check.Faults()
    # Each key by itself, and the type's own.
    with faults.collected():
        keys.check_metric(name, table)
    named = table.get("type") if isinstance(table, dict) else None
    of_type = METRIC_TYPES.get(named) if isinstance(named, str) else None
    if of_type and table.keys() >= set(of_type.keys):
        with faults.collected():
            metric_type = of_type.from_table(where, table)
    faults.raise_found()
    # Keys that depend on each other.
    mode: Mode = table.get("mode", keys.MODES[0])
    memory = _memory(where, mode, table)
    _check_drawn(where, type(metric_type), table)
    response = _response(where, metric_type, table)
    return Metric(
        application=application,
        name=name,
        version=table["version"],
        type=metric_type,
        params=_params(where, metric_type, mode, response, table),
        description=table["description"],
        owner=table["owner"],
        expires=table["expires"],
        mode=mode,
        memory=memory,
        max_values=table.get("max_values", MAX_VALUES),
        period_days=table.get("period_days", 0),
        max_periods=table.get("max_periods", MAX_PERIODS if memory == "period" else 0),
        response=response,
        reports_per_day=table.get("reports_per_day", 0),
        dimensions=_dimensions(where, table, dimensions),
        min_reports=table.get("min_reports", MIN_REPORTS),
    )


def _dimensions(
    where: str, table: Mapping[str, Any], dimensions: Mapping[str, Dimension]
) -> tuple[Dimension, ...]:
    """Return the dimensions that a metric names."""
    named, faults = [], check.Faults()
    for each in table.get("dimensions", ()):
        if each in dimensions:
            named.append(dimensions[each])
            continue
        known = ", ".join(dimensions) or "those of the table [dimensions], which is missing"
        expected = f"dimensions of the file: {known}{check.near(each, dimensions)}"
        faults.found.append(MetricError.of(f"{where}.dimensions", each, expected))
    if named:
        with faults.collected():
            check_combinations(f"{where}.dimensions", named)
    faults.raise_found()
    return tuple(named)


def _check_drawn(where: str, metric_type: type[MetricType], table: Mapping[str, Any]) -> None:
    """Refuse what doesn't go with a response that draws a whole report."""
    named = table.get("response", "unary")
    draws = issubclass(metric_type, NumberType)
    if named == "unary" and not draws:
        return
    what = f'type = "{metric_type.name}"' if draws else f'response = "{named}"'
    if table.get("mode", keys.MODES[0]) == "longitudinal":
        raise MetricError.about(
            f"{where}.{'type' if draws else 'response'}",
            f'{where}.{what}: needs mode = "once" or "one-time": each report of an answer would be '
            "drawn from the answer itself",
        )
    if extra := [key for key in ("f", "f0", "f1", "p") if key in table]:
        field = f"{where}.{extra[0]}"
        raise MetricError.about(field, f"{field}: must be left out with {what}, whose noise is q")


def _memory(where: str, mode: Mode, table: Mapping[str, Any]) -> Memory:
    """Return what has a response; mode "once" leaves no choice."""
    usual: Memory = "period" if mode == "once" else "value"
    memory: Memory = table.get("memory", usual)
    if memory == "period" and mode == "one-time":
        wanted = 'left out, or mode "longitudinal" or "once"'
    elif memory == "value" and mode == "once":
        wanted = '"period", or left out, with mode "once"'
    else:
        return memory
    message = f'{where}.memory = "{memory}": must be {wanted}'
    raise MetricError.about(f"{where}.memory", message)


def _response(where: str, metric_type: MetricType, table: Mapping[str, Any]) -> Response:
    """Return how a value's bits are blurred."""
    if table.get("response", "unary") == "unary" and not isinstance(metric_type, NumberType):
        return UNARY
    check.require(where, table, ("q",))
    chance = check.probability(f"{where}.q", table["q"])
    if isinstance(metric_type, NumberType):
        if "response" in table:
            message = f'{where}.response: must be left out with type = "number"'
            raise MetricError.about(f"{where}.response", message)
        response: Window | Subset = Window(metric_type.cells, metric_type.window, chance)
        width = "window"
    else:
        # A boolean has one bit for two categories.
        cells = 2 if isinstance(metric_type, BooleanType) else metric_type.width
        if cells is None:
            raise MetricError.about(
                f"{where}.response",
                f'{where}.response = "subset": needs a type with one bit per category: enum, '
                "boolean, ordinal, or joint without hashing",
            )
        size = check.integer(f"{where}.size", table["size"], 1, cells - 1)
        response, width = Subset(cells, size, chance), "size"
    if chance * response.cells <= response.width:
        least = response.width / response.cells
        total = "cells" if isinstance(response, Window) else "categories"
        expected = f"more than {width} / {total} = {least:.6g}, or reports carry no information"
        raise MetricError.of(f"{where}.q", chance, expected)
    return UNARY if isinstance(metric_type, BooleanType) else response


def _params(
    where: str,
    metric_type: MetricType,
    mode: Mode,
    response: Response,
    table: Mapping[str, Any],
) -> RapporParams:
    """Return the parameters; of a response that draws whole reports, the chances of single bits."""
    try:
        numbers = metric_type.filter_size(table) | _noise(where, response, table)
        params = RapporParams(**numbers)
    except ParameterError as error:
        field = f"{where}.{error.field}" if error.field else where
        raise MetricError.about(field, f"{where}.{error}") from error
    if response != UNARY:
        return params
    missing = None
    if not params.has_permanent:
        missing = "f = 0.0"
    elif not params.has_instantaneous:
        missing = "p = 0.0, q = 1.0"
    if missing and mode == "longitudinal":
        raise MetricError.about(
            f"{where}.{missing[0]}",
            f'{where}.{missing}: needs mode = "once" or "one-time", which sends a single report of '
            "each answer",
        )
    if mode != "longitudinal" and not missing:
        message = f'{where}.mode = "{mode}": must leave out one response: f = 0, or neither p nor q'
        raise MetricError.about(f"{where}.mode", message)
    if params.epsilon_permanent == math.inf and mode == "longitudinal":
        message = f"{where}.f0, f1: must both be above 0, or all reports reveal an answer"
        raise MetricError.about(f"{where}.f0", message)
    return params


def _noise(where: str, response: Response, table: Mapping[str, Any]) -> dict[str, float]:
    """Return f (or f0 and f1), p and q."""
    if isinstance(response, Subset):
        return {"p": response.other_chance, "q": response.chance}
    if isinstance(response, Window):
        inside, outside = response.width, response.cells - response.width
        return {"p": (1 - response.chance) / outside, "q": response.chance / inside}
    if table.get("response") == "subset":  # of a boolean: its one bit is turned over
        return {"p": 1 - table["q"], "q": table["q"]}
    given = {key: table[key] for key in keys.NOISE if key in table}
    is_longitudinal = table.get("mode", keys.MODES[0]) == "longitudinal"
    if given.keys() & {"f0", "f1"}:
        check.require(where, table, ("f0", "f1"))
        if "f" in given:
            raise MetricError.about(f"{where}.f", f"{where}.f: must be left out with f0 and f1")
    elif is_longitudinal:
        check.require(where, table, ("f",))
    if is_longitudinal or not (given.get("f") or given.get("f0") or given.get("f1")):
        check.require(where, table, ("p", "q"))
    if (given.get("p", 0), given.get("q", 1)) == (1, 0):
        message = f"{where}.p = 1, q = 0: must be left out, which means p = 0 and q = 1"
        raise MetricError.about(f"{where}.p", message)
    return given


def _groups(
    tables: Mapping[str, Any],
    metrics: Mapping[str, Metric],
    named: Collection[str],
    faults: check.Faults,
) -> list[Group]:
    """Read the groups, and check that their metrics can stand for one another."""
    groups = []
    first: dict[str, str] = {}
    for group_name, table in tables.items():
        with faults.collected():
            keys.check_group(group_name, table)
        if not isinstance(table, dict) or not isinstance(table.get("metrics"), list):
            continue
        with faults.collected():
            group = _group(group_name, table, metrics, named)
            groups.append(group)
            for name in group.metrics:
                if name in first:
                    where = f"groups.{group.name}.metrics"
                    message = f"{where}: must not hold {name!r}, which is in groups.{first[name]}"
                    raise MetricError.about(where, message)
                first[name] = group.name
    return groups


def _group(
    name: str, table: Mapping[str, Any], metrics: Mapping[str, Metric], named: Collection[str]
) -> Group:
    where = f"groups.{name}"
    names = check.different_texts(f"{where}.metrics", table["metrics"], 2, len(named))
    for metric in names:
        if metric not in named:
            message = (
                f"{where}.metrics: must be registered metrics, and {metric!r} isn't one of: "
                f"{', '.join(sorted(named))}{check.near(metric, named)}"
            )
            raise MetricError.about(f"{where}.metrics", message)
    choice = table.get("choice", keys.CHOICES[0])
    members = [metrics[each] for each in names if each in metrics]
    periods = {(each.mode, each.period_days, each.max_periods) for each in members}
    once = all(each.mode == "once" for each in members)
    if choice == "period" and (len(periods) > 1 or not once):
        message = (
            f'{where}.choice = "period": needs metrics with mode = "once" and the same period_days '
            "and max_periods, which they share"
        )
        raise MetricError.about(f"{where}.choice", message)
    return Group(name, names, choice)


def registry_json(path: str | Path) -> str:
    """Return the registry in a metrics.toml as JSON, in ASCII, for browsers.

    It is checked first, so no page gets a registry that the other sides refuse. Keys and values
    stay as they are; dates, which JSON doesn't have, become texts. Raises as `Registry.load`.
    """
    import datetime as dt
    import json
    import tomllib
    from pathlib import Path

    Registry.load(path)
    document = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    return json.dumps(document, indent=2, allow_nan=False, default=dt.date.isoformat) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the registry as JSON; return the command's exit code."""
    import argparse
    import sys
    from pathlib import Path

    parser = argparse.ArgumentParser(
        prog="python -m hubbub.protocol.registry",
        description="Check a metrics.toml, and print it as the JSON that browsers load.",
    )
    parser.add_argument("metrics", metavar="metrics.toml")
    parser.add_argument("-o", "--output", metavar="metrics.json", help="instead of standard output")
    options = parser.parse_args(arguments)
    try:
        registry = registry_json(options.metrics)
        if options.output is None:
            sys.stdout.write(registry)
        else:
            Path(options.output).write_text(registry, encoding="ascii")
    except (MetricError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
