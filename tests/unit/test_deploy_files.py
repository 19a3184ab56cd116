"""The examples in docs/deploy against the code and against each other; nothing is run."""

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from deploy_files import (
    FOLDER,
    alerts,
    commands,
    dockerfile,
    guide,
    kubernetes,
    pod,
    pod_environment,
    unit,
)
from hubbub.client import Registry, __version__
from hubbub.collector import CONFIG_VARIABLE, Settings, load, main

ROOT = FOLDER.parents[1]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - in a container
WORKERS_END_SECONDS = 10  # after drain_seconds the supervisor ends workers that still run


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HUBBUB_COLLECTOR_{name.upper()}", raising=False)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)


@pytest.fixture
def in_pod(tmp_path, monkeypatch) -> Settings:
    """Return the settings of a pod: those of the ConfigMap and of a Secret."""
    file = tmp_path / "collector.toml"
    file.write_text(kubernetes()["ConfigMap"]["data"]["collector.toml"])
    for name, value in pod_environment().items():
        monkeypatch.setenv(name, value)
    return load({}, file).settings


@pytest.fixture
def on_machine() -> Settings:
    return load({}, FOLDER / "collector.toml").settings


@pytest.fixture
def in_image() -> Settings:
    return load({}, FOLDER / "container.toml").settings


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_commands_and_flags_are_the_collectors(arguments):
    context = main.make_context("hubbub-collector", list(arguments))
    assert isinstance(main, click.Group)
    name, command, rest = main.resolve_command(context, list(arguments))
    assert command is not None
    command.make_context(name, rest, parent=context)


def test_example_keys_are_not_accepted(on_machine):
    assert not on_machine.anonymous
    hashes = {key.sha256 for key in on_machine.ingest_keys.values()}
    hashes |= {token.sha256 for token in on_machine.admin_tokens.values()}
    assert hashes == {"0" * 64}


def test_image_is_built_on_a_base_that_is_named_exactly():
    bases = [i.rest.split()[0] for i in dockerfile() if i.word == "FROM"]
    assert len(set(bases)) == 1  # the environment made in one has to work in the other
    match = re.fullmatch(r"python:(\d\.\d+)-slim-[a-z]+", bases[0])
    assert match
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {match[1]}" in project["classifiers"]


def test_image_runs_as_any_user_and_without_a_shell():
    words = [i.word for i in dockerfile()]
    last_stage = dockerfile()[len(words) - words[::-1].index("FROM") - 1 :]
    (user,) = [i.rest for i in last_stage if i.word == "USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert "ADD" not in words
    for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        (instruction,) = [i for i in last_stage if i.word == word]
        assert all(isinstance(part, str) for part in instruction.command)
    after = last_stage[[i.word for i in last_stage].index("USER") :]
    assert not {"RUN", "COPY"} & {i.word for i in after}
    assert [i.rest for i in last_stage if i.word == "STOPSIGNAL"] == ["SIGTERM"]


def test_image_has_the_program_that_it_starts():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry,) = [i.command for i in dockerfile() if i.word == "ENTRYPOINT"]
    assert entry[0] in project["scripts"]
    (install,) = [i.rest for i in dockerfile() if i.word == "RUN" and "constraints" in i.rest]
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", install)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert "collector" in extras


def test_image_listens_where_it_says_and_writes_where_it_may(in_image):
    last = {i.word: i.rest for i in dockerfile()}
    assert last["EXPOSE"] == str(in_image.port)
    assert in_image.host == EVERYWHERE
    assert in_image.store.startswith(f"sqlite:///{last['VOLUME']}/")
    assert last["WORKDIR"] == last["VOLUME"]
    assert in_image.probe_host == "127.0.0.1"
    assert f"http://127.0.0.1:{in_image.probe_port}/livez" in last["HEALTHCHECK"]
    user = last["USER"].split(":")[0]
    assert any(f"--owner={user}" in i.rest for i in dockerfile() if i.word == "RUN")
    (variable,) = re.findall(rf"{CONFIG_VARIABLE}=(\S+)", last["ENV"])
    assert any(i.rest.endswith(f" {variable}") for i in dockerfile() if i.word == "COPY")
    assert str(in_image.metrics.parent) == str(Path(variable).parent)


def test_build_gets_all_that_it_needs_and_little_else():
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert all((ROOT / name).exists() for name in kept)
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, build = pyproject["project"], pyproject["tool"]["hatch"]["build"]
    needed = {"README.md", *project["license-files"], "pyproject.toml", "constraints.txt"}
    needed |= {package.split("/")[0] for package in build["targets"]["wheel"]["packages"]}
    for instruction in dockerfile():
        if instruction.word == "COPY" and "--from" not in instruction.rest:
            needed |= set(instruction.rest.split()[:-1]) - {"."}
    assert kept == needed


def test_unit_gives_the_collector_time_to_drain(on_machine):
    patience = float(_service("TimeoutStopSec"))
    assert patience > on_machine.drain_seconds + WORKERS_END_SECONDS
    assert _service("KillSignal") == "SIGTERM"
    assert _service("KillMode") == "mixed"
    assert _service("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_unit_gives_the_collector_the_folder_and_the_files_that_it_needs(on_machine):
    folder = f"/var/lib/{_service('StateDirectory')}"
    assert _service("WorkingDirectory") == folder
    assert on_machine.store.startswith(f"sqlite:///{folder}/")
    assert int(_service("LimitNOFILE")) > on_machine.max_connections + 1024
    memory = int(_service("MemoryMax").removesuffix("M"))
    most = 110 + 1.25 * on_machine.max_waiting_bytes / 2**20  # as docs/do/operate.md has it
    most += 24 * on_machine.max_connections / 2**10
    assert memory >= on_machine.workers * most


def test_pods_get_a_configuration_that_is_whole(in_pod):
    assert in_pod.store == pod_environment()["HUBBUB_COLLECTOR_STORE"]
    assert not in_pod.anonymous
    assert "prometheus" in in_pod.admin_tokens
    assert in_pod.host == in_pod.admin_host == in_pod.probe_host == EVERYWHERE
    data = kubernetes()["ConfigMap"]["data"]
    assert {"metrics.toml", "collector.toml"} == data.keys()
    assert Registry.parse(data["metrics.toml"])
    assert pod()["enableServiceLinks"] is False


def test_secrets_are_referred_to_and_not_in_the_manifest():
    text = (FOLDER / "kubernetes.yaml").read_text()
    assert "Secret" not in kubernetes()
    assert not re.search(r"[0-9a-f]{64}|postgresql://|hub_(ingest|admin)_", text)
    readme = guide()
    for variable in _container()["env"]:
        reference = variable["valueFrom"]["secretKeyRef"]
        assert f"secret generic {reference['name']} " in readme
        assert f" {reference['key']}=" in readme


def test_objects_find_each_other(in_pod):
    objects = kubernetes()
    names = {o["metadata"]["name"] for kind, o in objects.items() if kind != "Namespace"}
    assert names == {"hubbub-collector"}
    namespaces = {o["metadata"].get("namespace") for o in objects.values()} - {None}
    assert namespaces == {objects["Namespace"]["metadata"]["name"]}
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    for kind, field in (
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
    ):
        assert objects[kind]["spec"][field] == {"matchLabels": labels}
    ports = {port["name"]: port["containerPort"] for port in _container()["ports"]}
    assert ports == {"http": in_pod.port, "admin": in_pod.admin_port, "probes": in_pod.probe_port}
    used = [port["targetPort"] for port in objects["Service"]["spec"]["ports"]]
    for rule in objects["NetworkPolicy"]["spec"]["ingress"]:
        used += [port["port"] for port in rule["ports"]]
    used += [
        _container()[probe]["httpGet"]["port"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    assert set(used) == ports.keys()
    assert used.count("probes") == 3
    assert "admin" not in {port["name"] for port in objects["Service"]["spec"]["ports"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in _container()["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod()["volumes"]}
    assert str(in_pod.metrics.parent) == mounts["config"]


def test_pods_end_slowly_enough_and_never_all_at_once(in_pod):
    (pause,) = re.findall(r"sleep\((\d+)\)", str(_container()["lifecycle"]["preStop"]))
    patience = pod()["terminationGracePeriodSeconds"]
    assert patience > int(pause) + in_pod.drain_seconds + WORKERS_END_SECONDS
    spec = kubernetes()["Deployment"]["spec"]
    assert spec["replicas"] > kubernetes()["PodDisruptionBudget"]["spec"]["minAvailable"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_pods_meet_the_restricted_standard():
    labels = kubernetes()["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    context = _container()["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (user,) = [i.rest for i in dockerfile() if i.word == "USER"]
    context = pod()["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert pod()["automountServiceAccountToken"] is False


def test_image_of_the_pods_is_this_version():
    assert _container()["image"] == f"hubbub-collector:{__version__}"
    assert (
        f"--tag hubbub-collector:{__version__} ."
        in (ROOT / "docs" / "do" / "deploy.md").read_text()
    )


def test_every_alert_leads_to_its_heading():
    for rule in alerts():
        path, _, heading = rule["annotations"]["runbook_url"].partition("#")
        assert heading == rule["alert"].lower()
        assert f"\n### {rule['alert']}\n" in (ROOT / path).read_text(encoding="utf-8")


def _service(name: str) -> str:
    (value,) = unit()[f"Service.{name}"]
    return value


def _container() -> Any:
    (container,) = pod()["containers"]
    return container
