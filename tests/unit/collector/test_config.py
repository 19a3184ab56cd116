"""Settings from flags, environment and file: which one wins, and what is said of mistakes."""

import datetime as dt
import os
import re
from pathlib import Path

import pytest

from hubbub.collector import ConfigError, IngestKey, Settings, generate_secret, load, to_toml
from hubbub.storage import mask

HASH, OTHER_HASH = "0123456789abcdef" * 4, "fedcba9876543210" * 4
KEY = f'[ingest_keys.app]\nsha256 = "{HASH}"\n'
TOKEN = f'[admin_tokens.ops]\nsha256 = "{OTHER_HASH}"\n'


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in os.environ:
        if name.upper().startswith("HUBBUB_COLLECTOR_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "collector.toml"


def faults_of(file: Path | None = None, **flags: str) -> tuple[str, ...]:
    """Return what is said of a configuration that can't work."""
    with pytest.raises(ConfigError) as refusal:
        load({"metrics": "metrics.toml"} | flags, file)
    assert str(refusal.value) == "; ".join(refusal.value.faults)
    assert not any("\n" in fault or "pydantic" in fault for fault in refusal.value.faults)
    return refusal.value.faults


def test_flag_wins_over_environment_over_file_over_default(file, monkeypatch):
    file.write_text("port = 1\nworkers = 2\nmax_reports = 3\n", encoding="utf-8")
    monkeypatch.setenv("HUBBUB_COLLECTOR_WORKERS", "20")
    monkeypatch.setenv("HUBBUB_COLLECTOR_MAX_REPORTS", "30")
    monkeypatch.setenv("HUBBUB_COLLECTOR_TLS_KEY", "")  # as if it weren't there
    configuration = load({"metrics": "metrics.toml", "max_reports": "300"}, file)
    settings = configuration.settings
    assert (settings.port, settings.workers, settings.max_reports) == (1, 20, 300)
    assert (settings.max_connections, settings.tls_key) == (4096, None)
    assert configuration.origin(("max_reports",)) == "--max-reports"
    assert configuration.origin(("workers",)) == "HUBBUB_COLLECTOR_WORKERS"
    assert configuration.origin(("port",)) == str(file)
    assert configuration.origin(("max_connections",)) == "default"


def test_command_that_needs_some_settings_ignores_the_others_but_no_unknown_name(file, monkeypatch):
    file.write_text("store = 'sqlite:///a.db'\nport = 'eighty'\nadmin_port = 1\n", encoding="utf-8")
    settings = load({"deduplication_days": "3"}, file, ["store", "deduplication_days"]).settings
    assert (settings.store, settings.deduplication_days) == ("sqlite:///a.db", 3)
    with pytest.raises(ConfigError, match="metrics: missing; give --metrics"):
        load({}, file, ["store", "metrics"])
    file.write_text("stroe = 'sqlite:///a.db'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"collector\.toml: stroe: unknown setting"):
        load({}, file, ["store"])
    monkeypatch.setenv("HUBBUB_COLLECTOR_STROE", "sqlite:///a.db")
    with pytest.raises(ConfigError, match="HUBBUB_COLLECTOR_STROE: unknown setting"):
        load({}, None, ["store"])


def test_environment_names_the_file_unless_a_flag_does(file, monkeypatch):
    file.write_text("metrics = 'm.toml'\nport = 1\n", encoding="utf-8")
    monkeypatch.setenv("HUBBUB_COLLECTOR_CONFIG", str(file))
    assert load({}).settings.port == 1
    other = file.with_name("other.toml")
    other.write_text("metrics = 'm.toml'\nport = 2\n", encoding="utf-8")
    assert load({}, other).settings.port == 2


def test_tables_of_keys_are_merged_entry_by_entry(file, monkeypatch):
    file.write_text(f"{KEY}burst = 7\nexpires = 2027-12-31\n", encoding="utf-8")
    monkeypatch.setenv("HUBBUB_COLLECTOR_INGEST_KEYS__APP__BURST", "70")
    monkeypatch.setenv("HUBBUB_COLLECTOR_INGEST_KEYS__WEB__SHA256", OTHER_HASH)
    settings = load({"metrics": "metrics.toml"}, file).settings
    assert settings.ingest_keys == {
        "app": IngestKey(sha256=HASH, burst=70, expires=dt.date(2027, 12, 31)),
        "web": IngestKey(sha256=OTHER_HASH),
    }


def test_reports_without_a_key_are_taken_only_where_there_are_no_keys():
    metrics = Path("metrics.toml")
    keys = {"app": IngestKey(sha256=HASH)}
    assert Settings(metrics=metrics).anonymous
    assert not Settings(metrics=metrics, ingest_keys=keys).anonymous
    assert Settings(metrics=metrics, ingest_keys=keys, anonymous=True).anonymous


def test_all_mistakes_are_reported_at_once_with_their_sources(file, monkeypatch):
    file.write_text("port = 70_000\ncolour = 'red'\n[ingest_keys.App]\n", encoding="utf-8")
    monkeypatch.setenv("HUBBUB_COLLECTOR_WORKERS", "many")
    monkeypatch.setenv("HUBBUB_COLLECTOR_WORKRES", "2")
    names = "must be a name of lower-case letters, digits, - and single _ (64 at most)"
    number = "must be a valid integer, unable to parse string as an integer"
    assert set(faults_of(file, drain_seconds="-1", improbable_reports="ignore")) == {
        f"{file}: port = 70000: must be less than or equal to 65535",
        f"{file}: colour: unknown setting",
        f"{file}: ingest_keys.App: {names}",
        f"{file}: ingest_keys.App.sha256: missing",
        f"HUBBUB_COLLECTOR_WORKERS = 'many': {number}",
        "HUBBUB_COLLECTOR_WORKRES: unknown setting",
        "--drain-seconds = '-1': must be greater than or equal to 0",
        "--improbable-reports = 'ignore': must be 'flag' or 'refuse'",
    }


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("port", "8100.5"),
        ("workers", "0"),
        ("body_seconds", "nan"),
        ("drain_seconds", "inf"),
        ("retention_days", "36501"),
        ("log_level", "\n" * 5000),
        ("host", ""),
    ],
)
def test_value_out_of_its_bounds_is_refused(flag, value):
    (fault,) = faults_of(None, **{flag: value})
    assert re.match(rf"--{flag.replace('_', '-')} = '.{{0,100}}: must ", fault)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port = ", "not valid TOML: "),
        ("\udcff", "not valid TOML: "),
        ("_env_file = 'x'", "_env_file: unknown setting"),
        ("[settings]\nport = 1", "settings: unknown setting"),
        ("ingest_keys = 1", "ingest_keys = 1: must be a valid dictionary"),
        ("tls_key = 'key.pem'", "tls_key: needs tls_certificate too"),
        ("admin_port = 8101", "admin_port: needs at least one of admin_tokens; make one with: "),
        ("admin_port = 0", "admin_port: needs at least one of admin_tokens; make one with: "),
        (f"admin_port = 8100\n{TOKEN}", "admin_port: must differ from port"),
        (
            "host = '0.0.0.0'\nprobe_host = '127.0.0.1'\nprobe_port = 8100",
            "probe_port: must differ from port",
        ),
        (
            "anonymous = false",
            "anonymous: without ingest_keys no client could send; make one",
        ),
        (
            f'{KEY}[ingest_keys.web]\nsha256 = "{HASH}"',
            "ingest_keys.web: has the sha256 of ingest_keys.app",
        ),
    ],
)
def test_file_that_is_no_configuration_or_contradicts_itself_is_refused(file, text, expected):
    file.write_bytes(text.encode(errors="surrogateescape"))
    (fault,) = faults_of(file)
    assert fault.startswith(f"{file}: {expected}")


def test_no_secret_is_quoted(file, monkeypatch):
    secret, _hash = generate_secret("ingest")
    file.write_text(
        f'port = "{secret}"\n[ingest_keys.app]\nsha256 = "{secret}"\nsecret = "{secret}"\n'
        f'burst = "{secret}"\n[admin_tokens.{secret}]\nsha256 = "{HASH}"\nscopes = ["{secret}"]',
        encoding="utf-8",
    )
    monkeypatch.setenv("HUBBUB_COLLECTOR_ADMIN_TOKENS__OPS", secret)
    monkeypatch.setenv("HUBBUB_COLLECTOR_LOG_LEVEL", "postgresql://user:beeblebrox@host/db")
    faults = faults_of(file)
    assert len(faults) >= 7
    assert secret not in "".join(faults)
    assert "beeblebrox" not in "".join(faults)


def test_printed_configuration_reads_back_the_same(file, monkeypatch):
    odd = 'quote " backslash \\ tab \t newline \n delete \x7f é'
    file.write_text(
        f"retention_days = 90\nupkeep_seconds = 1e-2\nanonymous = true\nadmin_port = 8101\n"
        f"{KEY}reports_per_second = 0.5\nexpires = 2027-12-31\n{TOKEN}",
        encoding="utf-8",
    )
    monkeypatch.setenv("HUBBUB_COLLECTOR_PORT", "9000")
    first = load({"metrics": odd, "anonymous": True}, file)
    printed = to_toml(first)
    monkeypatch.delenv("HUBBUB_COLLECTOR_PORT")
    again = file.with_name("again.toml")
    again.write_text(printed, encoding="utf-8")
    assert load({}, again).settings == first.settings
    assert "port = 9000  # HUBBUB_COLLECTOR_PORT\n" in printed
    assert f"retention_days = 90  # {file}\n" in printed
    assert "anonymous = true  # --anonymous\n" in printed
    assert "workers = 1  # default\n" in printed
    assert "# tls_key is not set\n" in printed
    assert f'sha256 = "{HASH}"  # {file}\n' in printed


@pytest.mark.parametrize(
    "password", ["beeblebrox", "bee@blebrox", "bee/blebrox", "bee:blebrox", "bee%40blebrox"]
)
def test_printed_configuration_hides_the_password_of_the_store(password):
    store = f"postgresql://zaphod:{password}@db.example/hubbub"
    printed = to_toml(load({"metrics": "m.toml", "store": store}))
    assert 'store = "postgresql://zaphod:***@db.example/hubbub"  # --store' in printed
    assert "blebrox" not in printed
    assert "blebrox" not in repr(load({"metrics": "m.toml", "store": store}).settings)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://h/d?user=u&password=p&x=1", "postgresql://h/d?user=u&password=***&x=1"),
        ("postgresql://h/d?sslpassword=p", "postgresql://h/d?sslpassword=***"),
        ("key hub_ingest_abc-_9.", "key hub_ingest_***."),
        ("hub_admin_abc", "hub_admin_***"),
        ("sqlite:///hubbub.db", "sqlite:///hubbub.db"),
        ("http://127.0.0.1:8100/v1", "http://127.0.0.1:8100/v1"),
        ("privacy@example.com", "privacy@example.com"),
    ],
)
def test_secrets_in_a_text_are_masked_and_the_rest_is_not(text, masked):
    assert mask(text) == masked
