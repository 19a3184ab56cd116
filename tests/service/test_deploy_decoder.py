"""The example of a decoder on Kubernetes, its commands run with real processes and real TLS."""

import asyncio
import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy_files import FOLDER, commands_of, kubernetes
from hubbub.protocol import Records, Registry, record_width
from hubbub.storage import MetricVersion, NewBatch, open_store
from service.posting import wait_until

pytestmark = pytest.mark.long

_REPORTS = 2000


def _certificates(folder: Path) -> None:
    """Make an authority that has signed itself alone, which everybody has."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hubbub")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.pem").write_bytes(pem)
    (folder / "cert.pem").write_bytes(pem)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(secret)


async def _fill(url: str, registry: Registry) -> None:
    metric = registry["homepage"]
    width = record_width(metric.params.k)
    rows = b"".join(
        bytes([i % metric.params.m, 0]) + os.urandom(width - 2) for i in range(_REPORTS)
    )
    records = {MetricVersion(metric.name, metric.version): Records(width, rows)}
    async with open_store(url, create=True) as store:
        await store.declare([metric])
        await store.append([NewBatch(os.urandom(16), records)], dt.datetime.now(dt.UTC).date())


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "metrics.toml").write_text(kubernetes()["ConfigMap"]["data"]["metrics.toml"])
    (tmp_path / "names.txt").write_text("".join(f"name-{i}.example\n" for i in range(100)))
    (tmp_path / "results").mkdir()
    return tmp_path


def test_a_night_on_kubernetes(folder):
    """The export, the scheduler, a worker and the decoder of the manifest, as one machine can."""
    (folder / "tls").mkdir()
    _certificates(folder / "tls")
    (folder / "dask").mkdir()
    settings = (FOLDER / "dask.yaml").read_text().replace("/etc/hubbub/tls", str(folder / "tls"))
    (folder / "dask" / "hubbub.yaml").write_text(settings)
    store = f"sqlite:///{folder / 'hubbub.db'}"
    asyncio.run(_fill(store, Registry.load(folder / "metrics.toml")))
    environment = os.environ | {
        "DASK_CONFIG": str(folder / "dask"),
        "HUBBUB_COLLECTOR_STORE": store,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    address = folder / "scheduler.json"
    replaced = {
        "/etc/hubbub/collector.toml": str(folder / "collector.toml"),
        "/etc/hubbub/metrics.toml": str(folder / "metrics.toml"),
        "s3://hubbub-reports": str(folder),
        "/candidates/": f"{folder}/",
        "/results/": f"{folder}/results/",
        "--local-directory=/tmp": f"--local-directory={folder}",
    }
    (folder / "collector.toml").write_text(f'metrics = "{folder}/metrics.toml"\n')

    def here(name: str) -> list[str]:
        words = commands_of(name)
        for given, instead in replaced.items():
            words = [word.replace(given, instead) for word in words]
        return words

    done = _run(here("hubbub-export"), environment)
    assert done.returncode == 0, done.stderr
    with ExitStack() as stack:
        scheduler = here("hubbub-scheduler")
        scheduler[scheduler.index("--port") + 1] = "0"
        scheduler += ["--host", "127.0.0.1", "--scheduler-file", str(address)]
        stack.enter_context(_running(scheduler, environment, folder / "scheduler.log"))
        wait_until(lambda: address.exists() and address.read_text().endswith("}"))
        found: dict[str, Any] = yaml.safe_load(address.read_text())
        replaced["tls://hubbub-scheduler:8786"] = found["address"]
        assert found["address"].startswith("tls://127.0.0.1:")
        worker = [word.replace("--nworkers=2", "--nworkers=1") for word in here("hubbub-worker")]
        stack.enter_context(_running(worker, environment, folder / "worker.log"))
        decoding = here("hubbub-decode")
        done = _run(decoding, environment)
        assert done.returncode == 0, done.stderr
        stranger = {**environment, "DASK_CONFIG": str(folder / "nothing")}
        refused = _run(decoding, stranger)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"Error: --master {found['address']}: ")
    assert refused.stderr.count("\n") == 1
    assert (folder / "results" / "homepage.csv").read_text().startswith("string,")
