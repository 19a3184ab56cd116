"""The settings of the collector, and from where they are read: flags, environment, one TOML file.

The flags of `serve`, the printed configuration and the table in docs/do/operate.md are made from
the descriptions here. A flag wins over the environment, that over the file, that over the default;
tables of keys are merged entry by entry. Every value keeps the name of the source it came from, for
errors and for `--print-config`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from hubbub.protocol import HubbubError
from hubbub.storage import mask

Scope = Literal["read", "export", "delete"]

# Without upper case and double underscores, which names from the environment can't have.
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](_?[a-z0-9-])*$", max_length=64)]
_Sha256 = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{64}$"),
    Field(repr=False, description="SHA-256 of the secret, as `hubbub-collector token` prints it."),
]
_Expires = Annotated[
    dt.date | None, Field(description="Last day (UTC) on which it is valid. Unset: never expires.")
]
_Port = Annotated[int, Field(ge=0, le=65_535)]
_Count = Annotated[int, Field(ge=1)]
_Days = Annotated[int, Field(ge=1, le=36_500)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

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


class ContradictionError(ValueError):
    """Fields that don't go together.

    `faults`: the field, and what is wrong with it.
    """

    def __init__(self, faults: tuple[tuple[str, str], ...]) -> None:
        super().__init__("; ".join(f"{field}: {fault}" for field, fault in faults))
        self.faults = faults


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class IngestKey(_Frozen):
    """A key with which apps send reports, and how many of them."""

    sha256: _Sha256
    reports_per_second: float = Field(
        default=1_000.0,
        gt=0,
        allow_inf_nan=False,
        description=f"Reports per second in the long run; a batch of fewer than {LEAST_CHARGE} "
        "counts as that many.",
    )
    burst: int = Field(
        default=10_000,
        ge=1,
        description="Reports at once after a pause; larger batches are never accepted.",
    )
    expires: _Expires = None


class AdminToken(_Frozen):
    """A token with which operators use the admin listener, and for what."""

    sha256: _Sha256
    scopes: frozenset[Scope] = Field(
        min_length=1, description="What it may do: any of read, export, delete."
    )
    expires: _Expires = None

    @field_validator("scopes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class Settings(_Frozen):
    """The configuration of one collector.

    Raises `pydantic.ValidationError`: `load` turns it into a `ConfigError`.
    """

    metrics: Path = Field(description="The registry, metrics.toml.")
    store: str = Field(
        default="sqlite:///hubbub.db",
        repr=False,  # may hold a password
        description="Database for the reports: sqlite:///PATH (created if missing) or "
        "postgresql://.",
    )
    old_schema: Literal["migrate", "wait", "refuse"] = Field(
        default="migrate",
        description="What to do if the store's schema is older: migrate it, wait for "
        "`hubbub-collector maintain --migrate`, or refuse to start.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: _Port = Field(default=8100, description="Port to listen on; 0 lets the system choose.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that share the port.")
    tls_certificate: Path | None = Field(
        default=None,
        description="PEM file with the certificate chain; with tls_key, it turns on HTTPS.",
    )
    tls_key: Path | None = Field(default=None, description="PEM file with the certificate's key.")
    ingest_keys: dict[_Name, IngestKey] = Field(
        default={}, description="Keys for `Authorization: Bearer`, by name."
    )
    anonymous: bool = Field(
        default_factory=lambda fields: not fields.get("ingest_keys"),
        description="Accept reports without a key. Unset: only if there are no ingest_keys.",
    )
    switch: Path | None = Field(
        default=None,
        description="File made by `hubbub-collector switch`, served at /v1/switch: the metrics "
        "that clients must not report. Unset: none is served.",
    )
    admin_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address of the admin listener."
    )
    admin_port: _Port | None = Field(
        default=None,
        description="Port of the admin listener, which needs admin_tokens. Unset: no admin "
        "listener.",
    )
    admin_tokens: dict[_Name, AdminToken] = Field(
        default={}, description="Tokens for the admin listener, by name."
    )
    cors_origins: str = Field(
        default="",
        pattern=r"^(https?://[^\s/]+( https?://[^\s/]+)*)?$",
        description="Origins of web pages on other hosts that may send reports (CORS), such as "
        "https://app.example.com, separated by spaces; unset: none.",
    )
    probe_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address of the listener for probes."
    )
    probe_port: _Port | None = Field(
        default=None,
        description="Port of a listener that answers only /livez and /readyz, however busy the "
        "public one is. Unset: no such listener.",
    )
    max_body_bytes: _Count = Field(
        default=2**20, description="Largest request body, after decompression."
    )
    max_reports: _Count = Field(default=10_000, description="Most reports in a batch.")
    max_requests: _Count = Field(
        default=1024, description="Most requests at a time; more are shed."
    )
    max_connections: _Count = Field(
        default=4096,
        description="Most connections per worker; beyond that, a new connection closes the one "
        "that has been idle longest.",
    )
    max_connections_per_address: _Count = Field(
        default=512,
        description="Most connections from one address; an address is remembered only while it "
        "has connections.",
    )
    max_waiting_bytes: _Count = Field(
        default=64 * 2**20,
        description="Most bytes that a worker holds for clients: batches waiting for the store, "
        "incomplete headers and bodies, and unread answers. Beyond that, requests are shed.",
    )
    header_seconds: _Seconds = Field(
        default=10.0, description="How long a request's header may take to arrive."
    )
    body_seconds: _Seconds = Field(
        default=30.0,
        description="How long a request's body may take to arrive, and its answer to be read.",
    )
    drain_seconds: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="On SIGTERM, how long running requests may take to finish.",
    )
    retry_after_seconds: int = Field(
        default=5, ge=1, le=86_400, description="How long shed clients are asked to wait."
    )
    deduplication_days: _Days = Field(
        default=14,
        description="How long batch ids are kept, to recognise batches that are sent again.",
    )
    retention_days: _Days | None = Field(
        default=None,
        description="How long reports or their counts are kept. Unset: until you delete them.",
    )
    report_days: _Days | None = Field(
        default=None,
        description="How long single reports are kept; after that, only each day's counts. Unset: "
        "as long as the counts.",
    )
    upkeep_seconds: _Seconds = Field(
        default=60.0,
        description="Pause between rounds of upkeep, which merge segments, delete what is too "
        "old, and so on.",
    )
    publish_seconds: _Seconds = Field(
        default=600.0,
        description="How often the admin listener updates its numbers of requests and reports; "
        "between updates, they don't show when a report arrived.",
    )
    improbable_tail: float = Field(
        default=1e-9,
        gt=0,
        lt=1,
        description="A report is improbable if the probability of its number of set bits is below "
        "this.",
    )
    improbable_reports: Literal["flag", "refuse"] = Field(
        default="flag",
        description="What to do with improbable reports: flag (count) or refuse them.",
    )
    min_free_bytes: int = Field(
        default=64 * 2**20,
        ge=0,
        description="Least free disk space for the store; with less, the collector isn't ready.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least important log lines to write."
    )
    log_times: bool = Field(
        default=False, description="Put the time into log lines on start, stop and reload."
    )

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
        faults += self._shared_ports()
        if not self.anonymous and not self.ingest_keys:
            advice = "make one with: hubbub-collector token --ingest"
            faults.append(("anonymous", f"without ingest_keys nobody could send; {advice}"))
        tables: Mapping[str, Mapping[str, IngestKey | AdminToken]] = {
            "ingest_keys": self.ingest_keys,
            "admin_tokens": self.admin_tokens,
        }
        for field, entries in tables.items():
            owner: dict[str, str] = {}
            for name, entry in entries.items():
                if (first := owner.setdefault(entry.sha256, name)) != name:
                    faults.append((f"{field}.{name}", f"has the sha256 of {field}.{first}"))
        if faults:
            raise ContradictionError(tuple(faults))
        return self

    def _shared_ports(self) -> list[tuple[str, str]]:
        """Return which ports are given twice.

        Whatever their addresses: one may have several names, or stand for all.
        """
        taken = {self.port: "port"}
        faults = []
        for name, port in (("admin_port", self.admin_port), ("probe_port", self.probe_port)):
            if port and (other := taken.setdefault(port, name)) != name:
                faults.append((name, f"must differ from {other}"))
        return faults


CONFIG_VARIABLE = "HUBBUB_COLLECTOR_CONFIG"
_PREFIX = "HUBBUB_COLLECTOR_"
_NESTING = "__"
_LONGEST_VALUE = 80  # characters: a message stays on two lines of a terminal
_Path = tuple[str | int, ...]

_UNKNOWN = "unknown setting"
_EXPECTED = {
    "missing": "missing",
    "extra_forbidden": _UNKNOWN,
    "[key]": "must be a name of lower-case letters, digits, - and single _ (64 at most)",
    "sha256": "must be 64 lower-case hex digits, as `hubbub-collector token` prints them",
}


class SettingsSource(NamedTuple):
    """Where some of the values come from."""

    values: Mapping[str, Any]  # as `Settings` takes them
    type: str  # "flag", "environment" or the file's name

    def name(self, path: _Path) -> str:
        """Return what a person would look for to change the value at a path."""
        if self.type == "flag":
            return "--" + str(path[0]).replace("_", "-")
        if self.type == "environment":
            return _variable(path)
        return f"{self.type}: {'.'.join(map(str, path))}"

    def has(self, path: _Path) -> bool:
        """Return whether there is a value at a path."""
        value: object = self.values
        for part in path:
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return bool(path)


class Configuration(NamedTuple):
    """The effective settings, and where they come from."""

    settings: Settings
    sources: tuple[SettingsSource, ...]  # the strongest first

    def origin(self, path: _Path) -> str:
        """Return the name of the source of a value, or "default"."""
        for source in self.sources:
            if source.has(path):
                is_file = source.type not in {"flag", "environment"}
                return source.type if is_file else source.name(path)
        return "default"


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
    sources = (
        SettingsSource({n: value for n, value in flags.items() if value is not None}, "flag"),
        SettingsSource(_environment(), "environment"),
        SettingsSource(_read(file) if file else {}, str(file)),
    )
    merged: dict[str, Any] = {}
    for source in reversed(sources):
        merged = _merged(merged, source.values)
    if only is not None:
        for name in Settings.model_fields.keys() - set(only):
            merged.pop(name, None)
        if "metrics" not in only:
            merged["metrics"] = ""
    faults = list(_unknown_variables())
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        faults += _describe(error, sources)
    if faults:
        raise ConfigError(tuple(map(mask, faults)))
    return Configuration(settings, sources)


def _environment() -> Mapping[str, Any]:
    """Return the values of the variables HUBBUB_COLLECTOR_...; an empty one counts as unset."""
    if not any(name.upper().startswith(_PREFIX) for name in os.environ):
        return {}
    # Only now, because most collectors are configured by a file, and it takes its time.
    from pydantic_settings import BaseSettings, EnvSettingsSource  # noqa: PLC0415

    class Environment(EnvSettingsSource):
        def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
            """Return a table or list from JSON; what isn't is left to the checks of the field."""
            try:
                return super().decode_complex_value(field_name, field, value)
            except ValueError:
                return value

    return Environment(
        cast("type[BaseSettings]", Settings),  # of which it needs the fields
        env_prefix=_PREFIX,
        env_nested_delimiter=_NESTING,
        env_ignore_empty=True,
    )()


# Not pydantic-settings' TomlConfigSettingsSource, which takes a missing file for an empty one and
# doesn't name the file in its errors; decision 12 says more.
def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError((f"{file}: can't be read: {error.strerror}",)) from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise ConfigError((f"{file}: not valid TOML: {mask(str(error))}",)) from error


def _merged(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    both = {**weak, **strong}
    for name in weak.keys() & strong.keys():
        if isinstance(weak[name], Mapping) and isinstance(strong[name], Mapping):
            both[name] = _merged(weak[name], strong[name])
    return both


def _unknown_variables() -> Iterator[str]:
    known = {CONFIG_VARIABLE, *(_variable((field,)) for field in Settings.model_fields)}
    for name in sorted(os.environ):
        head = _PREFIX + name[len(_PREFIX) :].split(_NESTING)[0]
        if name.upper().startswith(_PREFIX) and head.upper() not in known:
            yield f"{name}: {_UNKNOWN}"


def _describe(error: ValidationError, sources: tuple[SettingsSource, ...]) -> Iterator[str]:
    """Yield each fault: the name of the value in its source, the value, and what was expected."""

    def name(path: _Path) -> str:
        for part in (path, path[:-1]):  # what is missing has no source, but its table has
            for source in sources:
                if source.has(part):
                    return source.name(path)
        return ".".join(map(str, path))

    for fault in error.errors(include_url=False):
        kind, location, value = fault["type"], fault["loc"], fault["input"]
        reason = fault.get("ctx", {}).get("error")
        if isinstance(reason, ContradictionError):
            for field, text in reason.faults:
                yield f"{name(tuple(field.split('.')))}: {text}"
            continue
        if kind == "default_factory_not_called":  # only follows from another fault
            continue
        expected = _EXPECTED.get(kind) or _EXPECTED.get(str(location[-1]))
        if expected is None:
            expected = re.sub(r"^\w+ should ", "must ", fault["msg"])
        if location == ("metrics",) and kind == "missing":
            ways = f"--metrics, {_variable(location)} or metrics in the file of --config"
            expected += f"; give {ways}"
        path = tuple(part for part in location if part != "[key]")
        yield f"{name(path)}{_shown(kind, location, value)}: {expected}"


def _shown(kind: str, location: _Path, value: object) -> str:
    is_secret = kind == "extra_forbidden" or location[-1] in {"sha256", "[key]"}
    if kind == "missing" or is_secret or not isinstance(value, (str, int, float)):
        return ""
    text = mask(repr(value))
    return f" = {text[:_LONGEST_VALUE]}{'...' * (len(text) > _LONGEST_VALUE)}"


def _variable(path: _Path) -> str:
    names = [
        _PREFIX + _NESTING.join(map(str, path[:length])).upper()
        for length in range(len(path), 0, -1)
    ]
    present = {name.upper() for name in os.environ}
    return next((name for name in names if name in present), names[0])


def to_toml(configuration: Configuration) -> str:
    """Return the effective configuration as TOML, with the source of each value as a comment.

    Passwords in the store's address are masked, hashes of secrets are not.
    """

    def lines(table: tuple[str, ...], values: Mapping[str, Any]) -> Iterator[str]:
        for name, value in values.items():
            if value is None:
                yield f"# {name} is not set"
            elif not isinstance(value, Mapping):
                origin = configuration.origin((*table, name))
                yield f"{name} = {mask(toml_value(value))}  # {origin}"

    values = configuration.settings.model_dump()
    text = list(lines((), values))
    for field, entries in values.items():
        if isinstance(entries, Mapping):
            for name, entry in entries.items():
                text += ["", f"[{field}.{name}]", *lines((field, name), entry)]
    return "\n".join(text) + "\n"


def toml_value(value: object) -> str:
    """Return a string, number, boolean, date, path or collection of strings as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str() | Path():
            # JSON's escapes are TOML's, except that TOML wants DEL escaped too.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
        case dt.date():
            return value.isoformat()
        case frozenset() | tuple():
            return f"[{', '.join(sorted(map(toml_value, value)))}]"
        case _:
            return repr(value)


def describe_default(field: FieldInfo) -> str:
    """Return a field's default as TOML, "unset" or "required"."""
    if field.is_required():
        return "required"
    default: Any = field.default
    if field.default_factory is not None or default is None or default == {}:
        return "unset"
    return toml_value(default)
