"""The example of a decoder on Kubernetes against the code and each other; nothing is run."""

import re
import tomllib

import click
import pytest
import yaml

from deploy_files import (
    FOLDER,
    commands_of,
    decoder_objects,
    decoder_pods,
    dockerfile,
    guide,
    kubernetes,
)
from hubbub.client import __version__
from hubbub.collector import main as collector
from hubbub.decoder.cli import main as decoder

ROOT = FOLDER.parents[1]


@pytest.mark.parametrize(
    ("name", "main"), [("hubbub-export", collector), ("hubbub-decode", decoder)]
)
def test_commands_and_flags_exist(name, main):
    program, *arguments = commands_of(name)
    context = main.make_context(program, list(arguments))
    assert isinstance(main, click.Group)
    found, command, rest = main.resolve_command(context, list(arguments))
    assert command is not None
    command.make_context(found, rest, parent=context)


def test_exports_are_decoded_by_the_schedulers_workers():
    export, decode, worker = map(commands_of, ("hubbub-export", "hubbub-decode", "hubbub-worker"))
    assert f"--store=parquet:{export[export.index('--to') + 1]}" in decode
    (master,) = [word.removeprefix("--master=") for word in decode if word.startswith("--master=")]
    assert master in worker
    scheduler = commands_of("hubbub-scheduler")
    service = decoder_objects()["Service hubbub-scheduler"]
    (port,) = service["spec"]["ports"]
    assert master == f"tls://{service['metadata']['name']}:{port['port']}"
    assert scheduler[scheduler.index("--port") + 1] == str(port["port"])
    assert decode[2] in kubernetes()["ConfigMap"]["data"]["metrics.toml"]


def test_objects_find_each_other():
    objects = decoder_objects()
    namespace = kubernetes()["Namespace"]["metadata"]["name"]
    assert {item["metadata"]["namespace"] for item in objects.values()} == {namespace}
    name = "app.kubernetes.io/name"
    for key in ("scheduler", "worker"):
        spec = objects[f"Deployment hubbub-{key}"]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    spec = objects["Service hubbub-scheduler"]["spec"]
    of_scheduler = objects["Deployment hubbub-scheduler"]["spec"]["selector"]["matchLabels"]
    assert spec["selector"] == of_scheduler
    driver = objects["CronJob hubbub-decode"]["spec"]["jobTemplate"]["spec"]["template"]
    policy = objects["NetworkPolicy hubbub-decoder"]["spec"]
    meant = policy["podSelector"]["matchLabels"]
    assert meant == {name: driver["metadata"]["labels"][name]} == {name: of_scheduler[name]}
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": meant}}]}]


def test_no_worker_joins_without_a_certificate():
    settings = yaml.safe_load((FOLDER / "dask.yaml").read_text())
    in_pods = decoder_objects()["ConfigMap hubbub-dask"]["data"]["hubbub.yaml"]
    assert yaml.safe_load(in_pods) == settings
    communication = settings["distributed"]["comm"]
    assert communication["require-encryption"] is True
    needed = set(re.findall(r"/etc/hubbub/tls/([\w.]+)", str(communication["tls"])))
    readme = guide()
    assert needed == set(re.findall(r"--from-file ([a-z]+\.pem)", readme))


def test_pods_mount_existing_files_and_only_the_secrets_they_need():
    readme = guide()
    maps = {"hubbub-collector", "hubbub-dask"}
    for name, spec in decoder_pods().items():
        (container,) = spec["containers"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        assert {it["configMap"]["name"] for it in volumes.values() if "configMap" in it} <= maps
        secrets = {it["secret"]["secretName"] for it in volumes.values() if "secret" in it}
        secrets |= {it["secretRef"]["name"] for it in container.get("envFrom", [])}
        for variable in container.get("env", []):
            assert name == "hubbub-export"
            secrets.add(variable["valueFrom"]["secretKeyRef"]["name"])
        assert all(f"secret generic {secret} " in readme for secret in secrets)


def test_pods_meet_the_restricted_standard():
    (user,) = [i.rest for i in dockerfile() if i.word == "USER"]
    for spec in decoder_pods().values():
        context = spec["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == user
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"].keys() == {"memory"}


def test_images_are_this_version_and_hold_what_is_run():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = guide()
    images = {spec["containers"][0]["image"] for spec in decoder_pods().values()}
    assert images == {f"hubbub-{kind}:{__version__}" for kind in ("collector", "decoder")}
    build = rf"--build-arg EXTRAS=([\w,]+) --tag hubbub-decoder:{re.escape(__version__)} \."
    (extras,) = re.findall(build, readme)
    assert {"dask"} <= set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert any("EXTRAS=" in i.rest for i in dockerfile() if i.word == "ARG")
