"""SIGHUP: a new registry or certificate comes into force without a pause, a wrong one doesn't."""

import signal
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from factories import make_metric, make_params, registry_toml
from hubbub.client import Metric
from hubbub.collector import generate_secret
from hubbub.simulations import Collector
from programs import forked_collector
from service.faults import errors_kept_in, kill, workers_of
from service.posting import Answer, make_batch, post, send, stored_count, wait_until

_OLD = make_metric()
_NEW = make_metric(version=2, params=make_params(k=64))
_OTHER = make_metric("search")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_new_registry_is_used_after_a_hangup_and_old_versions_stay_welcome(
    metrics_file, database, workers
):
    with forked_collector(metrics_file, database, ["--workers", str(workers)]) as collector:
        assert post(collector.url, make_batch(3, _OLD)).status == 201
        assert post(collector.url, make_batch(3, _NEW)).status == 422
        metrics_file.write_text(registry_toml(_NEW, _OTHER), encoding="utf-8")
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: _takes(collector, _NEW, times=5 * workers))
        assert post(collector.url, make_batch(1, _OTHER)).status == 201
        assert post(collector.url, make_batch(4, _OLD)).status == 201
    assert stored_count(database, _OLD) == 7
    assert stored_count(database, _OTHER) == 1


_WRONG = (
    (registry_toml().replace("f = 0.5", "f = 0.25"), "metrics.homepage.f: changed from 0.5"),
    (registry_toml().replace("com.example.browser", "com.example.mail"), "application = "),
    (registry_toml() + "colour = 1", "unknown key 'colour'"),
    ("", "application is missing"),
)


def test_wrong_registries_are_explained_and_the_old_one_stays(metrics_file, database, tmp_path):
    errors = tmp_path / "errors"
    with errors_kept_in(errors), forked_collector(metrics_file, database) as collector:
        for number, (text, fault) in enumerate(_WRONG, start=1):
            metrics_file.write_text(text, encoding="utf-8")
            collector.process.send_signal(signal.SIGHUP)
            wait_until(lambda n=number: _not_reloaded(errors) == n)  # type: ignore[misc]
            assert fault in errors.read_text(encoding="utf-8").splitlines()[-1]
            assert post(collector.url, make_batch()).status == 201
    assert stored_count(database) == 3 * len(_WRONG)


def _not_reloaded(errors: Path) -> int:
    return errors.read_text(encoding="utf-8").count("not reloaded")


def test_new_certificate_is_shown_after_a_hangup(metrics_file, database, tmp_path):
    authority = trustme.CA()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    _issue(authority, certificate, key)
    with forked_collector(metrics_file, database, options) as collector:
        assert collector.url.startswith("https://127.0.0.1:")
        first = _shown_certificate(collector, authority)
        _issue(authority, certificate, key)
        assert _shown_certificate(collector, authority) == first
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: _shown_certificate(collector, authority) != first)


def test_certificate_without_its_key_is_refused_and_the_old_one_stays(
    metrics_file, database, tmp_path
):
    authority = trustme.CA()
    certificate, key, errors = (tmp_path / name for name in ("cert.pem", "key.pem", "errors"))
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    _issue(authority, certificate, key)
    with errors_kept_in(errors), forked_collector(metrics_file, database, options) as collector:
        before = _shown_certificate(collector, authority)
        _issue(authority, certificate, tmp_path / "other.pem")  # half of a renewal
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "not reloaded" in errors.read_text(encoding="utf-8"))
        assert _shown_certificate(collector, authority) == before


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_keys_and_tokens_are_revoked_and_added_by_a_hangup(
    metrics_file, database, tmp_path, workers
):
    (old, old_hash), (new, new_hash) = (generate_secret("ingest") for _ in range(2))
    (old_token, old_token_hash), (token, token_hash) = (generate_secret("admin") for _ in range(2))
    config = tmp_path / "collector.toml"

    def configure(key_hash: str, admin_hash: str):
        config.write_text(
            f"workers = {workers}\nadmin_port = 0\npublish_seconds = 0.2\n"
            f'[ingest_keys.app]\nsha256 = "{key_hash}"\n'
            f'[admin_tokens.ops]\nsha256 = "{admin_hash}"\n',
            encoding="utf-8",
        )

    configure(old_hash, old_token_hash)
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        admin = collector.read_admin_url()
        assert _status_with(collector, old) == 201
        assert _status_with(collector, new) == 401
        configure(new_hash, token_hash)
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: {_status_with(collector, new) for _ in range(5 * workers)} == {201})
        assert {_status_with(collector, old) for _ in range(5 * workers)} == {401}
        assert _ask(admin, "/metrics", old_token).status == 401
        assert _ask(admin, "/metrics", token).status == 200
        if workers > 1:  # one that replaces another goes by what is in force, not by the file
            config.write_text("being edited", encoding="utf-8")
            before = set(workers_of(collector))
            kill(min(before))
            wait_until(lambda: len(set(workers_of(collector)) - before) == 1)
            assert {_status_with(collector, old) for _ in range(10)} == {401}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_failed_reload_is_reported_by_the_metrics_until_one_succeeds(
    metrics_file, database, tmp_path, workers
):
    token, token_hash = generate_secret("admin")
    config, errors = tmp_path / "collector.toml", tmp_path / "errors"
    text = (
        f"workers = {workers}\nadmin_port = 0\npublish_seconds = 0.2\n"
        f'[admin_tokens.ops]\nsha256 = "{token_hash}"\n'
    )
    config.write_text(text, encoding="utf-8")
    metrics_file.write_text(registry_toml(_NEW), encoding="utf-8")
    options = ["--config", str(config)]
    with errors_kept_in(errors), forked_collector(metrics_file, database, options) as collector:
        admin = collector.read_admin_url()

        def told() -> str:
            return _ask(admin, "/metrics", token).body.decode()

        def times_reloaded() -> int:
            return errors.read_text(encoding="utf-8").count('"event": "reloaded"')

        assert "hubbub_reload_failing 0.0" in told()
        wrong_files = (
            (registry_toml(_OLD), text),  # a version can't be taken back
            (registry_toml(_NEW), text + "colour = 'red'"),
        )
        for done, (wrong_registry, wrong_config) in enumerate(wrong_files, start=1):
            metrics_file.write_text(wrong_registry, encoding="utf-8")
            config.write_text(wrong_config, encoding="utf-8")
            collector.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "hubbub_reload_failing 1.0" in told())
            assert "read them again" in _ask(admin, "/", token).body.decode()
            metrics_file.write_text(registry_toml(_NEW), encoding="utf-8")
            config.write_text(text + "# port = 1\n", encoding="utf-8")
            collector.process.send_signal(signal.SIGHUP)
            wait_until(lambda done=done: times_reloaded() == done * workers)  # type: ignore[misc]
            wait_until(lambda: "hubbub_reload_failing 0.0" in told())
    said = errors.read_text(encoding="utf-8")
    assert "must be at least 2; what version 1 was can come back as version 3" in said
    assert "colour: unknown setting" in said


def test_change_that_needs_a_restart_is_reported(metrics_file, database, tmp_path):
    config, errors = tmp_path / "collector.toml", tmp_path / "errors"
    config.write_text("max_reports = 5\n", encoding="utf-8")
    options = ["--config", str(config)]
    with errors_kept_in(errors), forked_collector(metrics_file, database, options) as collector:
        config.write_text("max_reports = 6\nupkeep_seconds = 10\n", encoding="utf-8")
        collector.process.send_signal(signal.SIGHUP)
        told = '"settings": ["max_reports", "upkeep_seconds"]'
        wait_until(lambda: told in errors.read_text(encoding="utf-8"))
        assert post(collector.url, make_batch(6)).status == 413


@pytest.mark.long
def test_worker_is_replaced_by_one_with_the_registry_that_is_in_force(metrics_file, database):
    with forked_collector(metrics_file, database, ["--workers", "2"]) as collector:
        metrics_file.write_text("being edited", encoding="utf-8")
        before = set(workers_of(collector))
        kill(min(before))
        wait_until(lambda: len(set(workers_of(collector)) - before) == 1)
        wait_until(lambda: _takes(collector, _OLD, times=10))


def test_old_tls_and_plain_http_are_refused(metrics_file, database, tmp_path):
    authority = trustme.CA()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _issue(authority, certificate, key)
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with forked_collector(metrics_file, database, options) as collector:
        with pytest.raises(ssl.SSLError):
            _shown_certificate(collector, trustme.CA())
        with socket.create_connection(_address(collector)) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: collector\r\n\r\n")
            assert b"200" not in plain.recv(1000)
        assert _shown_certificate(collector, authority)


def _takes(collector: Collector, metric: Metric, times: int) -> bool:
    return all(post(collector.url, make_batch(1, metric)).status == 201 for _ in range(times))


def _status_with(collector: Collector, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    return post(collector.url, make_batch(1), headers=headers).status


def _ask(admin: str, path: str, token: str) -> Answer:
    return send(admin, "GET", path, headers={"Authorization": f"Bearer {token}"})


def _issue(authority: trustme.CA, certificate: Path, key: Path) -> None:
    issued = authority.issue_cert("127.0.0.1")
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())


def _shown_certificate(collector: Collector, authority: trustme.CA) -> bytes | None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        socket.create_connection(_address(collector)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        return connection.getpeercert(binary_form=True)


def _address(collector: Collector) -> tuple[str, int]:
    host, port = collector.url.partition("://")[2].split(":")
    return host, int(port)
