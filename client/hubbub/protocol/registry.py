"""The metrics of an application as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file, and refuse every entry that they don't know.
Invariant: what a metric's reports mean never changes under the same version, because reports drawn
in different ways can't be told apart afterwards; `check_compatible` is the guard.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hubbub.protocol import checks as check
from hubbub.protocol.errors import MetricError, ParameterError, UnknownMetricError
from hubbub.protocol.metric_types import MetricType, types_for
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.numbers import NumberType
from hubbub.protocol.metrics import MAX_PERIODS, MAX_VALUES, Memory, Metric, Mode
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response, Subset, Window

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = ("application", "lifetime_epsilon", "metrics", "groups")
_MODES: tuple[Mode, ...] = ("longitudinal", "one-time", "once")
_RESPONSES = ("unary", "subset")
_REQUIRED = ("version", "type", "description", "owner", "expires")
_OPTIONAL = ("mode", "memory", "response")
_MEMORIES: tuple[Memory, ...] = ("value", "period")
_OF_MODE = {"longitudinal": ("reports_per_day",), "one-time": (), "once": ()}
_OF_MEMORY = {"value": ("max_values",), "period": ("period_days", "max_periods")}
_MOST_DAYS = 3650  # ten years, longer than an app's installation lives
_NOISE = ("f", "f0", "f1", "p", "q")
_CHOICES = ("life", "period")
MOST_VERSION = 2**31 - 1  # fits a signed 32-bit integer, as databases have


class Group(NamedTuple):
    """Metrics of which each client answers one, so that a client spends what that one costs.

    Attributes
    ----------
    name : str
    metrics : tuple of str
        At least two.
    choice : "life" or "period"
        Whether a client's metric stays the same, or is chosen anew for each period. Then the
        metrics have one `max_periods` together.
    """

    name: str
    metrics: tuple[str, ...]
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
        Of metrics in the registry, each in one group at most.

    Attributes
    ----------
    groups : dict of str to Group
    """

    __slots__ = ("_metrics", "application", "groups", "lifetime_epsilon")

    def __init__(
        self,
        application: str,
        metrics: Mapping[str, Metric],
        lifetime_epsilon: float | None = None,
        groups: Iterable[Group] = (),
    ) -> None:
        self.application = application
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
            If the file can't be read, isn't TOML, or an entry is wrong (the message says where).
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MetricError(f"{path}: can't be read as UTF-8 text: {error}") from error
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read a registry from the text of a metrics.toml (raises as `load`)."""
        import tomllib

        try:
            document = tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, or of an integer with thousands of digits
            raise MetricError(f"metrics.toml: not valid TOML: {error}") from error
        check.refuse_unknown("metrics.toml", document, _KEYS)
        application = check.text("application", document.get("application"))
        tables = document.get("metrics")
        if not isinstance(tables, dict) or not tables:
            raise MetricError("metrics: must be at least one table [metrics.NAME]")
        metrics = {name: _metric(application, name, table) for name, table in tables.items()}
        budget = document.get("lifetime_epsilon")
        if budget is not None:
            budget = check.positive("lifetime_epsilon", budget)
        return cls(application, metrics, budget, _groups(document.get("groups", {}), metrics))

    def reserve(self, without: Collection[str] = ()) -> float:
        """Return what a client spends at most if times alone decide: see `Metric.reserve`.

        A group counts as its dearest metric.

        Parameters
        ----------
        without : collection of str
            Metrics to leave out.
        """
        reserves: dict[str, list[float]] = {}
        for name, metric in self._metrics.items():
            if name not in without:
                # No metric's name has a blank, so this is no group's.
                reserves.setdefault(metric.group or f"alone {name}", []).append(metric.reserve)
        return math.fsum(map(max, reserves.values()))

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
    """Refuse a registry that changes what an existing version means.

    Raises
    ------
    MetricError
        If the application differs, a version goes down, a definition changed without a new one, a
        group with a choice for life is renamed, or `lifetime_epsilon` leaves less for changed
        answers than before (what clients spent on these already would then decide whether they
        answer new questions).
    """
    if old.application != new.application:
        raise MetricError(
            f"application = {new.application!r}: must stay {old.application!r}, because every "
            "client's permanent responses depend on it"
        )
    if old.lifetime_epsilon is not None and new.lifetime_epsilon is not None:
        still = {(metric.name, metric.version) for metric in new.values()}
        gone = [m.reserve for m in old.values() if (m.name, m.version) not in still]
        needed = math.fsum([*gone, new.reserve(), old.lifetime_epsilon, -old.reserve()])
        if new.lifetime_epsilon < needed * (1 - 1e-9):
            raise MetricError(
                f"lifetime_epsilon = {new.lifetime_epsilon}: must be at least {needed:.6g}, which "
                "adds the price of each new metric and version, so that clients' silence doesn't "
                "depend on how often their answers changed"
            )
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if after.version < before.version:
            raise MetricError(
                f"metrics.{name}.version = {after.version}: must be at least {before.version}; "
                f"what version {after.version} was can come back as version {before.version + 1}"
            )
        was, now = old.groups.get(before.group), new.groups.get(after.group)
        if was and now and was.name != now.name and was.choice == now.choice == "life":
            raise MetricError(
                f"groups.{now.name}: must be named {was.name!r} while it holds {name!r}: clients' "
                "choices for life are drawn with the name, and of those that answered many would "
                "fall silent"
            )
        if after.version == before.version and after.definition != before.definition:
            raise MetricError(
                f"metrics.{name}: changed from {before.definition} to {after.definition}; "
                f"version must be greater than {before.version}"
            )


def _metric(application: str, name: str, table: Any) -> Metric:
    where = f"metrics.{name}"
    check.metric_name(where, name)
    if not isinstance(table, dict):
        raise MetricError(f"{where} = {table!r}: must be a table")
    check.require(where, table, _REQUIRED)
    types = types_for(table["type"])
    a_type = types[check.choice(f"{where}.type", table["type"], types)]
    mode = check.choice(f"{where}.mode", table.get("mode", _MODES[0]), _MODES)
    memory = _memory(where, mode, table)
    of_type = a_type.keys + a_type.optional_keys
    of_response = ("size",) if table.get("response") == "subset" else ()
    known = _REQUIRED + _OPTIONAL + _OF_MODE[mode] + _OF_MEMORY[memory] + of_type + of_response
    known += _NOISE
    check.refuse_unknown(where, table, known)
    check.require(where, table, a_type.keys)
    metric_type = a_type.from_table(where, table)
    response = _response(where, metric_type, mode, table)
    return Metric(
        application=application,
        name=name,
        version=check.integer(f"{where}.version", table["version"], 1, MOST_VERSION),
        type=metric_type,
        params=_params(where, metric_type, mode, response, table),
        description=check.text(f"{where}.description", table["description"]),
        owner=check.text(f"{where}.owner", table["owner"]),
        expires=check.date(f"{where}.expires", table["expires"]),
        mode=mode,
        memory=memory,
        **_caps(where, memory, table),
        response=response,
        reports_per_day=_reports_per_day(where, table),
    )


def _memory(where: str, mode: Mode, table: Mapping[str, Any]) -> Memory:
    """Return what has a response; mode "once" leaves no choice."""
    usual: Memory = "period" if mode == "once" else "value"
    memory = check.choice(f"{where}.memory", table.get("memory", usual), _MEMORIES)
    if memory == "period" and mode == "one-time":
        raise MetricError(
            f'{where}.memory = "period": must be left out, or mode "longitudinal" or "once"'
        )
    if memory == "value" and mode == "once":
        raise MetricError(
            f'{where}.memory = "value": must be "period", or left out, with mode "once"'
        )
    return memory


def _response(
    where: str, metric_type: MetricType, mode: Mode, table: Mapping[str, Any]
) -> Response:
    """Return how a value's bits are blurred."""
    named = check.choice(f"{where}.response", table.get("response", "unary"), _RESPONSES)
    draws = isinstance(metric_type, NumberType)
    if named == "unary" and not draws:
        return UNARY
    what = f'type = "{metric_type.name}"' if draws else f'response = "{named}"'
    if mode == "longitudinal":
        raise MetricError(
            f'{where}.{what}: needs mode = "once" or "one-time": each report of an answer would be '
            "drawn from the answer itself"
        )
    if extra := [key for key in ("f", "f0", "f1", "p") if key in table]:
        raise MetricError(f"{where}.{extra[0]}: must be left out with {what}, whose noise is q")
    check.require(where, table, ("q",))
    chance = check.probability(f"{where}.q", table["q"])
    if isinstance(metric_type, NumberType):
        if "response" in table:
            raise MetricError(f'{where}.response: must be left out with type = "number"')
        response: Window | Subset = Window(metric_type.cells, metric_type.window, chance)
        width = "window"
    else:
        # A boolean has one bit for two categories.
        cells = 2 if isinstance(metric_type, BooleanType) else metric_type.width
        if cells is None:
            raise MetricError(
                f'{where}.response = "subset": needs a type with one bit per category: enum, '
                "boolean, ordinal, or joint without hashing"
            )
        check.require(where, table, ("size",))
        size = check.integer(f"{where}.size", table["size"], 1, cells - 1)
        response, width = Subset(cells, size, chance), "size"
    if chance * response.cells <= response.width:
        least = response.width / response.cells
        total = "cells" if isinstance(response, Window) else "categories"
        raise MetricError(
            f"{where}.q = {chance}: must be more than {width} / {total} = {least:.6g}, or "
            "reports carry no information"
        )
    return UNARY if isinstance(metric_type, BooleanType) else response


def _caps(where: str, memory: Memory, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many answers a client gives, and for how long."""
    if memory == "value":
        values = table.get("max_values", MAX_VALUES)
        return {"max_values": check.integer(f"{where}.max_values", values, 1, MOST_VERSION)}
    check.require(where, table, ("period_days",))
    periods = table.get("max_periods", MAX_PERIODS)
    return {
        "period_days": check.integer(f"{where}.period_days", table["period_days"], 1, _MOST_DAYS),
        "max_periods": check.integer(f"{where}.max_periods", periods, 1, MOST_VERSION),
    }


def _reports_per_day(where: str, table: Mapping[str, Any]) -> int:
    if "reports_per_day" not in table:
        return 0
    return check.integer(f"{where}.reports_per_day", table["reports_per_day"], 1, 1)


def _params(
    where: str,
    metric_type: MetricType,
    mode: Mode,
    response: Response,
    table: Mapping[str, Any],
) -> RapporParams:
    """Return the parameters; without p and q there is no second response.

    For a response that draws a whole report they hold the chances of single bits.
    """
    try:
        numbers = metric_type.filter_size(table) | _noise(where, response, table)
        params = RapporParams(**numbers)
    except ParameterError as error:
        raise MetricError(f"{where}.{error}") from error
    if response != UNARY:
        return params
    usual = MetricType.epsilon_permanent, MetricType.epsilon_report
    own = type(metric_type).epsilon_permanent, type(metric_type).epsilon_report
    if metric_type.true_bits(params)[-1] > params.h and not set(own).isdisjoint(usual):
        raise MetricError(
            f"{where}.type = {metric_type.name!r}: values with more than {params.h} bits must have "
            "epsilons of their own, which the type's class doesn't state"
        )
    missing = None
    if not params.has_permanent:
        missing = "f = 0.0"
    elif not params.has_instantaneous:
        missing = "p = 0.0, q = 1.0"
    if missing and mode == "longitudinal":
        raise MetricError(
            f'{where}.{missing}: needs mode = "once" or "one-time", which sends a single report of '
            "each answer"
        )
    if mode != "longitudinal" and not missing:
        raise MetricError(
            f'{where}.mode = "{mode}": must leave out one response: f = 0, or neither p nor q'
        )
    if params.epsilon_permanent == math.inf and mode == "longitudinal":
        raise MetricError(f"{where}.f0, f1: must both be above 0, or all reports reveal an answer")
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
    given = {key: table[key] for key in _NOISE if key in table}
    is_longitudinal = table.get("mode", _MODES[0]) == "longitudinal"
    if given.keys() & {"f0", "f1"}:
        check.require(where, table, ("f0", "f1"))
        if "f" in given:
            raise MetricError(f"{where}.f: must be left out with f0 and f1")
    elif is_longitudinal:
        check.require(where, table, ("f",))
    if is_longitudinal or not (given.get("f") or given.get("f0") or given.get("f1")):
        check.require(where, table, ("p", "q"))
    if (given.get("p", 0), given.get("q", 1)) == (1, 0):
        raise MetricError(f"{where}.p = 1, q = 0: must be left out, which means p = 0 and q = 1")
    return given


def _groups(tables: Any, metrics: Mapping[str, Metric]) -> list[Group]:
    """Read the groups, and check that their metrics can stand for one another."""
    if not isinstance(tables, dict):
        raise MetricError(f"groups = {tables!r}: must be tables [groups.NAME]")
    groups = [_group(name, table, metrics) for name, table in tables.items()]
    first: dict[str, str] = {}
    for group in groups:
        for name in group.metrics:
            if name in first:
                raise MetricError(
                    f"groups.{group.name}.metrics: must not hold {name!r}, which is in "
                    f"groups.{first[name]}"
                )
            first[name] = group.name
    return groups


def _group(name: str, table: Any, metrics: Mapping[str, Metric]) -> Group:
    where = f"groups.{name}"
    check.metric_name(where, name)
    if not isinstance(table, dict):
        raise MetricError(f"{where} = {table!r}: must be a table")
    check.refuse_unknown(where, table, ("metrics", "choice"))
    check.require(where, table, ("metrics",))
    names = check.different_texts(f"{where}.metrics", table["metrics"], 2, len(metrics))
    for metric in names:
        if metric not in metrics:
            raise MetricError(
                f"{where}.metrics: must be registered metrics, and {metric!r} isn't one of: "
                f"{', '.join(sorted(metrics))}"
            )
    choice = check.choice(f"{where}.choice", table.get("choice", _CHOICES[0]), _CHOICES)
    members = [metrics[each] for each in names]
    periods = {(each.mode, each.period_days, each.max_periods) for each in members}
    if choice == "period" and (len(periods) > 1 or members[0].mode != "once"):
        raise MetricError(
            f'{where}.choice = "period": needs metrics with mode = "once" and the same period_days '
            "and max_periods, which they share"
        )
    return Group(name, names, choice)
