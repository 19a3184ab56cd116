"""`hubbub-simulate try`: a service to watch, which ends when it is asked to."""

import base64
import signal
import subprocess
import sys

import pytest

from service.posting import send


@pytest.fixture
def watched(tmp_path):
    command = [sys.executable, "-m", "hubbub.simulations", "try", "--reports", "4000"]
    command += ["--output", str(tmp_path / "try")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.long
def test_the_report_sharpens_until_it_is_stopped(watched, tmp_path):
    addresses = {line.split()[0]: line for line in (watched.stdout.readline() for _ in range(3))}
    admin, token = addresses["admin"].split()[2], addresses["admin"].rstrip(")\n").split()[-1]
    basic = base64.b64encode(f"anybody:{token}".encode()).decode()
    page = send(admin, "GET", "/", headers={"Authorization": f"Basic {basic}"})
    assert (page.status, b"first_name" in page.body) == (200, True)
    watched.stdout.readline()
    first, second = (watched.stdout.readline().split()[0] for _ in range(2))
    assert (first, second) == ("4,000", "8,000")
    report = (tmp_path / "try" / "report.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh"' in report
    watched.send_signal(signal.SIGINT)
    *_, last = watched.stdout
    assert last == f"stopped; files in {tmp_path / 'try'}/\n"
    assert watched.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        send(addresses["collector"].split()[1], "GET", "/livez")
