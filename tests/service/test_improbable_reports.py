"""Reports that no honest client would make: counted, or refused if so configured."""

from factories import make_metric, make_report, registry_toml
from hubbub.client import Batch, Report
from hubbub.collector import generate_secret
from hubbub.protocol import EnumType, Subset
from programs import forked_collector
from service.posting import post, send, stored_count, wait_until, wait_until_published

_TOKEN, _TOKEN_HASH = generate_secret("admin")
_HONEST = int("55" * 16, 16)  # half of the bits
_FORGED = 2**128 - 1
_CONFIG = f"""
admin_port = 0
publish_seconds = 0.2
[admin_tokens.prometheus]
sha256 = "{_TOKEN_HASH}"
"""


def test_improbable_reports_are_stored_and_counted_without_their_cohort(
    metrics_file, database, tmp_path
):
    config = tmp_path / "collector.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        admin = collector.read_admin_url()
        wait_until_published(admin, _TOKEN)
        assert post(collector.url, Batch(_reports(3, 3, 9))).status == 201
        flagged = 'hubbub_improbable_reports_total{metric="homepage"} 3.0'
        wait_until(lambda: flagged in _metrics(admin))
        assert "cohort=" not in _metrics(admin)
    assert stored_count(database) == 4


def test_batch_with_improbable_reports_is_refused_if_so_configured(
    metrics_file, database, tmp_path
):
    config = tmp_path / "collector.toml"
    config.write_text('improbable_reports = "refuse"' + _CONFIG, encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        admin = collector.read_admin_url()
        wait_until_published(admin, _TOKEN)
        assert post(collector.url, Batch(_reports())).status == 201
        answer = post(collector.url, Batch(_reports(3, 9)))
        assert answer.status == 422
        assert answer.json["detail"].startswith(
            "reports: 2 of homepage with an improbable number of set bits; must be between "
        )
        refused = 'hubbub_requests_total{reason="improbable",status="422"} 1.0'
        wait_until(lambda: refused in _metrics(admin))
    assert stored_count(database) == 1


def test_batch_with_impossible_bits_is_always_refused(database, tmp_path):
    theme = make_metric(
        "theme", metric_type=EnumType(("red", "green", "blue", "black", "white")), mode="once",
        period_days=30, response=Subset(5, 2, 0.7),
    )  # fmt: skip
    metrics = tmp_path / "metrics.toml"
    metrics.write_text(registry_toml(theme), encoding="utf-8")
    possible, three, padding = (make_report(theme, bits=bits) for bits in (0b11, 0b111, 1 << 5 | 1))
    with forked_collector(metrics, database, []) as collector:
        assert post(collector.url, Batch((possible,))).status == 201
        answer = post(collector.url, Batch((possible, three, padding)))
        assert answer.status == 422
        assert answer.json["detail"] == (
            "reports: 2 of theme with impossible bits; must be exactly 2 of the first 5"
        )
    assert stored_count(database, theme) == 1


def _reports(*forged: int) -> tuple[Report, ...]:
    return (
        make_report(cohort=5, bits=_HONEST),
        *(make_report(cohort=cohort, bits=_FORGED) for cohort in forged),
    )


def _metrics(admin: str) -> str:
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    return send(admin, "GET", "/metrics", headers=headers).body.decode()
