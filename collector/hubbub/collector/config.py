"""The settings of the collector, and from where they are read: flags, environment, one TOML file.

The flags of `serve` and the site's table of settings are made from the fields and their docstrings.
A flag wins over the environment, that over the file, that over the default; tables of keys are
merged entry by entry. Every value keeps its source, for errors and for `--print-config`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from hubbub.protocol import HubbubError
from hubbub.storage import mask

# Without upper case and double underscores, which names from the environment can't have.
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](_?[a-z0-9-])*$", max_length=64)]
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$"), Field(repr=False)]
_Host = Annotated[str, Field(min_length=1)]
_Port = Annotated[int, Field(ge=0, le=65_535)]
_Count = Annotated[int, Field(ge=1)]
_Days = Annotated[int, Field(ge=1, le=36_500)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

TABLES = ("ingest_keys", "admin_tokens")

LEAST_CHARGE = 10
"""Reports that a batch costs its key at least. In the store its id takes 154 bytes of disk at most,
as nine reports of 16 bytes do, and memory besides."""


class ConfigError(HubbubError):
    """A configuration that can't work.

    `faults`: one line each: the source, the field, the value (unless secret) and what was expected.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class _Secret(_Frozen):
    sha256: _Sha256
    """SHA-256 of the secret, as `hubbub-collector token` prints it."""
    expires: dt.date | None = None
    """Last day (UTC) on which it is valid. Unset: never expires."""


class IngestKey(_Secret):
    """A key with which apps send reports, and how many of them."""

    reports_per_second: float = Field(default=1_000.0, gt=0, allow_inf_nan=False)
    """Reports per second in the long run; a batch of fewer than 10 counts as that many."""
    burst: _Count = 10_000
    """Reports at once after a pause; larger batches are never accepted."""


class AdminToken(_Secret):
    """A token with which operators use the admin listener."""


class Settings(_Frozen):
    """The configuration of one collector.

    Raises `pydantic.ValidationError`: `load` turns it into a `ConfigError`.
    """

    metrics: Path
    """The registry, metrics.toml."""
    store: str = Field(default="sqlite:///hubbub.db", repr=False)  # may hold a password
    """Database for the reports: sqlite:///PATH (`serve` creates it) or postgresql://."""
    host: _Host = "127.0.0.1"
    """Address to listen on."""
    port: _Port = 8100
    """Port to listen on; 0 lets the system choose."""
    workers: int = Field(default=1, ge=1, le=256)
    """Processes that share the port."""
    tls_certificate: Path | None = None
    """PEM file with the certificate chain; with tls_key, it turns on HTTPS."""
    tls_key: Path | None = None
    """PEM file with the certificate's key."""
    ingest_keys: dict[_Name, IngestKey] = {}
    """Keys for `Authorization: Bearer`, by name."""
    anonymous: bool = Field(default_factory=lambda fields: not fields.get("ingest_keys"))
    """Accept reports without a key. Unset: only if there are no ingest_keys."""
    switch: Path | None = None
    """File made by `hubbub-collector switch`, served at /v1/switch: the metrics that clients must
    not report. Unset: none is served."""
    admin_host: _Host = "127.0.0.1"
    """Address of the admin listener."""
    admin_port: _Port | None = None
    """Port of the admin listener, which needs admin_tokens. Unset: no admin listener."""
    admin_tokens: dict[_Name, AdminToken] = {}
    """Tokens for the admin listener, by name."""
    cors_origins: str = Field(default="", pattern=r"^(https?://[^\s/]+( https?://[^\s/]+)*)?$")
    """Origins of web pages on other hosts that may send reports (CORS), such as
    https://app.example.com, separated by spaces; unset: none."""
    probe_host: _Host = "127.0.0.1"
    """Address of the listener for probes."""
    probe_port: _Port | None = None
    """Port of a listener that answers only /livez and /readyz, however busy the public one is.
    Unset: no such listener."""
    max_body_bytes: _Count = 2**20
    """Largest request body, after decompression."""
    max_reports: _Count = 10_000
    """Most reports in a batch."""
    max_connections: _Count = 4096
    """Most connections per worker; beyond that, a new connection closes the one that has been idle
    longest."""
    max_connections_per_address: _Count = 512
    """Most connections from one address; an address is remembered only while it has connections."""
    max_waiting_bytes: _Count = 64 * 2**20
    """Most bytes that a worker holds for clients: batches waiting for the store, incomplete headers
    and bodies, and unread answers. Beyond that, requests are shed."""
    header_seconds: _Seconds = 10.0
    """How long a request's header may take to arrive."""
    body_seconds: _Seconds = 30.0
    """How long a request's body may take to arrive, and its answer to be read."""
    drain_seconds: float = Field(default=30.0, ge=0, le=86_400, allow_inf_nan=False)
    """On SIGTERM, how long running requests may take to finish."""
    retry_after_seconds: int = Field(default=5, ge=1, le=86_400)
    """How long shed clients are asked to wait."""
    deduplication_days: _Days = 14
    """How long batch ids are kept; a batch that is sent again later counts twice."""
    retention_days: _Days | None = None
    """How long reports or their counts are kept. Unset: until you delete them."""
    report_days: _Days | None = None
    """How long single reports are kept; after that, only each day's counts. Unset: as long as the
    counts."""
    upkeep_seconds: _Seconds = 60.0
    """Pause between rounds of upkeep, which merge segments, delete what is too old, and so on."""
    publish_seconds: _Seconds = 600.0
    """How often the admin listener updates its numbers of requests and reports; between updates,
    they don't show when a report arrived."""
    improbable_reports: Literal["flag", "refuse"] = "flag"
    """Treatment of reports whose number of set bits has a probability below 1e-9: flag (count) or
    refuse them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important log lines to write."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse fields that don't go with others."""
        faults = []
        for one, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
            if getattr(self, one) is not None and getattr(self, other) is None:
                faults.append((one, f"needs {other} too"))
        if self.report_days and self.retention_days and self.report_days >= self.retention_days:
            expected = f"must be below retention_days = {self.retention_days}"
            faults.append(("report_days", f"{expected}, which deletes counts, too"))
        if self.admin_port is not None and not self.admin_tokens:
            advice = "make one with: hubbub-collector token --admin"
            faults.append(("admin_port", f"needs at least one of admin_tokens; {advice}"))
        # Whatever their addresses: one may have several names, or stand for all.
        ports = {self.port: "port"}
        for name, port in (("admin_port", self.admin_port), ("probe_port", self.probe_port)):
            if port and (other := ports.setdefault(port, name)) != name:
                faults.append((name, f"must differ from {other}"))
        if not self.anonymous and not self.ingest_keys:
            advice = "make one with: hubbub-collector token --ingest"
            faults.append(("anonymous", f"without ingest_keys no client could send; {advice}"))
        hashes: dict[tuple[str, str], str] = {}
        for field in TABLES:
            for name, entry in getattr(self, field).items():
                if (first := hashes.setdefault((field, entry.sha256), name)) != name:
                    faults.append((f"{field}.{name}", f"has the sha256 of {field}.{first}"))
        if faults:
            raise PydanticCustomError("contradiction", "{faults}", {"faults": faults})
        return self


CONFIG_VARIABLE = "HUBBUB_COLLECTOR_CONFIG"
_PREFIX = "HUBBUB_COLLECTOR_"
_NESTING = "__"
_LONGEST_VALUE = 80  # characters: a message stays on two lines of a terminal
_Path = tuple[str | int, ...]

_FLAG, _ENVIRONMENT = "flag", "environment"
_UNKNOWN = "unknown setting"
_EXPECTED = {
    "missing": "missing",
    "extra_forbidden": _UNKNOWN,
    "[key]": "must be a name of lower-case letters, digits, - and single _ (64 at most)",
    "sha256": "must be 64 lower-case hex digits, as `hubbub-collector token` prints them",
}


class Configuration(NamedTuple):
    """The effective settings.

    `sources`: where each value and table comes from, by its path: "flag", "environment" or the
    file's name.
    """

    settings: Settings
    sources: Mapping[_Path, str]

    def origin(self, path: _Path) -> str:
        """Return the name of the source of a value, or "default"."""
        source = self.sources.get(path, "default")
        return _named(path, source) if source in {_FLAG, _ENVIRONMENT} else source


def load(
    flags: Mapping[str, Any], file: Path | None = None, only: Collection[str] | None = None
) -> Configuration:
    """Return the configuration of flags, environment and file.

    `flags`: values by the names of the settings; None: not given. `file`: by default what
    HUBBUB_COLLECTOR_CONFIG names, if anything. `only`: the settings that matter. The others may be
    missing or wrong, but not unknown: a misspelt name must not let a default stand in for what was
    meant. Raises `ConfigError` with all faults at once.
    """
    if file is None and (named := os.environ.get(CONFIG_VARIABLE)):
        file = Path(named)
    values: dict[str, Any] = {}
    sources: dict[_Path, str] = {}
    for source, given in (  # the strongest last
        (str(file), _read(file) if file else {}),
        (_ENVIRONMENT, _environment()),
        (_FLAG, {name: value for name, value in flags.items() if value is not None}),
    ):
        _merge(values, given, source, sources)
    if only is not None:
        for name in Settings.model_fields.keys() - set(only):
            values.pop(name, None)
        if "metrics" not in only:
            values["metrics"] = ""
    try:
        return Configuration(Settings.model_validate(values), sources)
    except ValidationError as error:
        raise ConfigError(tuple(map(mask, _describe(error, sources)))) from None


def _merge(
    values: dict[str, Any],
    given: Mapping[str, Any],
    source: str,
    sources: dict[_Path, str],
    path: _Path = (),
) -> None:
    """Put what a source gives over what weaker ones gave; tables are merged entry by entry."""
    for name, value in given.items():
        sources[*path, name] = source
        if isinstance(value, Mapping):
            if not isinstance(values.get(name), dict):
                values[name] = {}
            _merge(values[name], value, source, sources, (*path, name))
        else:
            values[name] = value


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError((f"{file}: can't be read: {error.strerror}",)) from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise ConfigError((f"{file}: not valid TOML: {mask(str(error))}",)) from error


def _environment() -> Mapping[str, Any]:
    """Return the values of the variables HUBBUB_COLLECTOR_...; an empty one counts as unset."""
    values: dict[str, Any] = {}
    for name, text in os.environ.items():
        if text and name.upper().startswith(_PREFIX) and name.upper() != CONFIG_VARIABLE:
            *tables, last = name[len(_PREFIX) :].lower().split(_NESTING)
            inner = values
            for table in tables:
                if not isinstance(inner.get(table), dict):
                    inner[table] = {}
                inner = inner[table]
            inner[last] = text
    return values


def _describe(error: ValidationError, sources: Mapping[_Path, str]) -> Iterator[str]:
    """Yield each fault: the name of the value in its source, the value, and what was expected."""

    def name(path: _Path) -> str:
        for part in (path, path[:-1]):  # what is missing has no source, but its table has
            if source := sources.get(part):
                return _named(path, source)
        return ".".join(map(str, path))

    for fault in error.errors(include_url=False):
        kind, location, value = fault["type"], fault["loc"], fault["input"]
        if kind == "default_factory_not_called":  # only follows from another fault
            continue
        if kind == "contradiction":
            for field, text in fault["ctx"]["faults"]:
                yield f"{name(tuple(field.split('.')))}: {text}"
            continue
        expected = _EXPECTED.get(kind) or _EXPECTED.get(str(location[-1]))
        if expected is None:
            expected = re.sub(r"^\w+ should ", "must ", fault["msg"])
        if location == ("metrics",) and kind == "missing":
            expected += f"; give --metrics, {_PREFIX}METRICS or metrics in the file of --config"
        shown = ""
        is_secret = kind == "extra_forbidden" or location[-1] in {"sha256", "[key]"}
        if kind != "missing" and not is_secret and isinstance(value, (str, int, float)):
            text = mask(repr(value))
            shown = f" = {text[:_LONGEST_VALUE]}{'...' * (len(text) > _LONGEST_VALUE)}"
        path = tuple(part for part in location if part != "[key]")
        yield f"{name(path)}{shown}: {expected}"


def _named(path: _Path, source: str) -> str:
    """Return what a person would look for to change the value at a path."""
    if source == _FLAG:
        return "--" + str(path[0]).replace("_", "-")
    if source != _ENVIRONMENT:
        return f"{source}: {'.'.join(map(str, path))}"
    return _PREFIX + _NESTING.join(map(str, path)).upper()


def to_toml(configuration: Configuration) -> str:
    """Return the effective configuration as TOML, with the source of each value as a comment.

    Passwords in the store's address are masked, hashes of secrets are not.
    """
    values = configuration.settings.model_dump()
    tables = [((field, name), it) for field in TABLES for name, it in values.pop(field).items()]
    lines: list[str] = []
    for path, entries in [((), values), *tables]:
        if path:
            lines += ["", f"[{'.'.join(path)}]"]
        for name, value in entries.items():
            if value is None:
                lines.append(f"# {name} is not set")
            else:
                origin = configuration.origin((*path, name))
                lines.append(f"{name} = {mask(toml_value(value))}  # {origin}")
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """Return a string, number, boolean, date or path as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str() | Path():
            # JSON's escapes are TOML's, except that TOML wants DEL escaped too.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
        case dt.date():
            return value.isoformat()
        case _:
            return repr(value)


def describe(field: FieldInfo) -> tuple[str, str]:
    """Return what a field is, and its default as TOML, "unset" or "required"."""
    words = " ".join((field.description or "").split())
    if field.is_required():
        return words, "required"
    default: Any = field.default
    if field.default_factory is not None or default is None or default == {}:
        return words, "unset"
    return words, toml_value(default)
