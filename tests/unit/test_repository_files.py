"""Files that other programs read: workflows, dependabot, the citation, Compose."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy_files import exposed_names, metrics_in
from factories import make_metric, registry_toml
from hubbub.collector import Settings, load
from hubbub.decoder.watching.options import load_watch
from hubbub.protocol import BooleanType

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docs" / "deploy" / "compose"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("citation-file-format", "CITATION.cff"),
        ("compose-spec", "docs/deploy/compose/compose.yaml"),
    ],
)
def test_file_has_the_form_that_its_reader_expects(schema, pattern):
    files = sorted(ROOT.glob(pattern))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_builder_is_held_by_hashes_at_the_versions_of_everything_else():
    pinned = set((ROOT / "constraints.txt").read_text().split())
    text = (ROOT / "build-requirements.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    held = re.findall(r"^(\S+) --hash=sha256:[0-9a-f]{64}$", text, flags=re.MULTILINE)
    assert len(held) == len(lines)
    assert set(held) <= pinned
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {re.split("[>=]", each)[0] for each in needed} <= {each.split("==")[0] for each in held}


def test_workflows_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = set()
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            run |= set(job.get("strategy", {}).get("matrix", {}).get("target", []))
            for step in job["steps"]:
                for words in re.findall(r"\bmake ([a-z- ]+)", step.get("run", "")):
                    run |= set(words.split())
    assert run - targets == set()
    assert {"lint", "test", "attacks", "dist", "test-lowest"} <= run


def test_demo_installs_what_it_runs_and_nothing_once_all_is_installed(tmp_path):
    def planned(*targets):
        command = ["make", "--dry-run", f"VENV={tmp_path}", *targets]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    for target in ("demo", "demo-watch", "try"):
        assert re.findall(r"'\.\[(.+?)\]'", planned(target)) == ["simulations"], target
    (tmp_path / ".runs").touch()
    assert "pip install" not in planned("demo")
    everything = planned("test")
    assert "'.[dev]'" in everything
    (touched,) = re.findall(rf"^touch (.*{tmp_path}/\.ready.*)$", everything, re.MULTILINE)
    for path in touched.split():
        Path(path).touch()
    assert "pip install" not in planned("demo", "test")


def test_workflows_test_each_python_that_the_package_names():
    pyproject = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'Python :: (3\.\d+)"', pyproject)
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    for job in ("test", "dist"):
        assert jobs[job]["strategy"]["matrix"]["python"] == named


def test_services_of_compose_find_each_other_and_their_files():
    compose = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", [])) <= services.keys(), name
        assert set(service.get("secrets", [])) <= compose["secrets"].keys(), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                mine = source in {"./metrics.toml", "./candidates.txt"}
                assert mine or (COMPOSE / source).exists(), source
            else:
                assert source in compose["volumes"], name
    text = "".join(path.read_text() for path in COMPOSE.rglob("*") if path.is_file())
    hosts = set(re.findall(r"\b(\w+):(?:8100|8101|9090)\b", text)) | {"postgresql"}
    assert hosts == {"collector", "postgresql", "prometheus"}
    readme = (ROOT / "docs" / "do" / "deploy.md").read_text()
    assert [name for name in re.findall(r"\$\{(\w+):", text) if f"`{name}`" not in readme] == []


def test_collector_of_compose_starts_with_its_variables(monkeypatch):
    """All that is in the file and the environment is a setting, and whole."""
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    for name, text in services["collector"]["environment"].items():
        monkeypatch.setenv(name, "0" * 64 if name.endswith("SHA256") else text)
    settings = load({}, COMPOSE / "collector.toml").settings
    assert isinstance(settings, Settings)
    assert not settings.anonymous
    assert "prometheus" in settings.admin_tokens
    assert (settings.port, settings.admin_port) == (8100, 8101)
    assert "max_size 1MiB" in (COMPOSE / "Caddyfile").read_text()
    assert settings.max_body_bytes == 2**20


def test_report_of_compose_reads_its_file(tmp_path, monkeypatch):
    """Beside a registry, with the store's address from the environment."""
    monkeypatch.setenv("HUBBUB_COLLECTOR_STORE", "postgresql://example/x")
    (tmp_path / "decode.toml").write_text((COMPOSE / "decode.toml").read_text())
    (tmp_path / "metrics.toml").write_text(
        registry_toml(make_metric("dark", metric_type=BooleanType()))
    )
    watch = load_watch(tmp_path / "decode.toml")
    assert [report.name for report in watch.reports] == ["dark"]
    assert (watch.store, watch.output) == ("postgresql://example/x", Path("/data"))
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    assert "report:/data" in services["report"]["volumes"]


def test_dashboard_shows_numbers_that_exist():
    dashboard = json.loads((COMPOSE / "grafana" / "dashboards" / "hubbub.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(shown) > 8
    assert [each for each in shown if not metrics_in(each) <= exposed_names()] == []


@pytest.mark.parametrize("part", ["client", "collector", "decoder", "simulations"])
def test_tables_of_rooms_name_packages_and_modules_that_exist(part):
    text = (ROOT / part / "README.md").read_text(encoding="utf-8")
    rooms = re.findall(
        r"^\| (?:package|module)s? \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    first_cells = [row.split("|")[1] for table in rooms for row in table.splitlines()]
    named = set(re.findall(r"`([\w/]+)`", " ".join(first_cells)))
    assert len(named) >= 5
    folder = ROOT / part / "hubbub"
    there = [name for name in named if [*folder.glob(f"**/{name}"), *folder.glob(f"**/{name}.py")]]
    assert named == set(there)
