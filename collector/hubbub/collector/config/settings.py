"""The settings of the collector: each with its default, its bounds and its description.

The flags of `serve`, the printed configuration and the table in docs/do/operate.md are made from
these descriptions. `config.sources` reads the values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from hubbub.protocol.errors import HubbubError

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

    Raises `pydantic.ValidationError`: `config.sources.load` turns it into a `ConfigError`.
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
        "`hubbub-collector migrate`, or refuse to start.",
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
