"""Apps that install the package: plain Node, TypeScript, and a bundle for browsers."""

import json
from pathlib import Path
from typing import Any

import pytest

from http_servers import ScriptedServer, scripted_server
from package.conftest import Package
from package.npm import run
from unit.javascript.node import NODE

REGISTRY: dict[str, Any] = {
    "application": "com.example.browser",
    "metrics": {
        "crashed": {
            "version": 1,
            "type": "boolean",
            "description": "Whether the app crashed",
            "owner": "privacy@example.com",
            "expires": "2099-12-31",
            "f": 0.5,
            "p": 0.25,
            "q": 0.75,
        }
    },
}
NODE_APP = """
import { Telemetry } from "hubbub-client";
import { fileStorage } from "hubbub-client/node";
const storage = fileStorage("state");
"""
BROWSER_APP = """
import { browserStorage, Telemetry } from "hubbub-client";
const storage = browserStorage();
"""
RECORD_AND_CLOSE = """
const telemetry = new Telemetry({ registry: REGISTRY, endpoint: ENDPOINT, storage });
telemetry.record("crashed", true);
await telemetry.close(20_000);
const { recorded, delivered, dropped, disabled } = telemetry.status();
console.log(JSON.stringify({ recorded, delivered, dropped, disabled }));
"""
LOAD = """
Object.freeze(globalThis);
await import("hubbub-client");
await import("hubbub-client/node");
console.log("loaded");
"""
COMPILERS = ["typescript", "typescript-5"]
"""The current one, and the oldest that a consumer may have (see devDependencies)."""
IN_NODE = {"lib": ["es2022"], "types": ["node"]}
IN_BROWSERS = {"lib": ["es2022", "dom"], "types": []}


def app(program: str, server: ScriptedServer) -> str:
    known = f"const REGISTRY = {json.dumps(REGISTRY)}, ENDPOINT = {json.dumps(server.url)};"
    return f"{program}\n{known}\n{RECORD_AND_CLOSE}"


def assert_delivered_one_report(printed: str, server: ScriptedServer) -> None:
    status = json.loads(printed)
    assert status == {"recorded": 1, "delivered": 1, "dropped": {}, "disabled": None}
    assert [request.path for request in server.received] == ["/v1/reports"]
    (report,) = server.reports
    assert (report["metric"], report["version"], report["cohort"]) == ("crashed", 1, 0)


def test_installed_package_records_and_delivers_in_node(project):
    with scripted_server() as server:
        (project / "app.js").write_text(app(NODE_APP, server), encoding="utf-8")
        assert_delivered_one_report(run(NODE, "app.js", folder=project), server)
    assert (project / "state").is_dir()


def bundle(package: Package, project: Path, program: str) -> str:
    """Return the one script that esbuild makes for browsers."""
    (project / "page.js").write_text(program, encoding="utf-8")
    options = ["--bundle", "--minify", "--format=esm", "--platform=browser", "--target=es2022"]
    return package.run_tool(
        ".bin/esbuild", "page.js", *options, "--log-level=warning", folder=project
    )


def test_bundle_for_browsers_records_and_delivers(package, project, tmp_path):
    """The bundle lies where nothing could be imported; Node brings the localStorage."""
    with scripted_server() as server:
        bundled = bundle(package, project, app(BROWSER_APP, server))
        (tmp_path / "bundle.mjs").write_text(bundled, encoding="utf-8")
        flags = ["--experimental-webstorage", "--localstorage-file=local"]
        assert_delivered_one_report(run(NODE, *flags, "bundle.mjs", folder=tmp_path), server)


def test_browser_files_use_no_node_names(package):
    """Compiled without Node's types, every name must be one that browsers have."""
    package.run_tool(".bin/tsc", "--project", "tsconfig.browser.json")


def test_bundle_leaves_out_what_an_app_does_not_use(package, project):
    whole = bundle(package, project, 'import * as all from "hubbub-client"; console.log(all);')
    part = bundle(
        package, project, 'import { makeRegistry } from "hubbub-client"; console.log(makeRegistry);'
    )
    assert "localStorage" in whole
    assert "localStorage" not in part
    assert len(part) < len(whole) / 2


def test_loading_the_package_changes_nothing(project):
    """So `sideEffects: false` is true: nothing global can be changed, and no module tries to."""
    (project / "load.js").write_text(LOAD, encoding="utf-8")
    assert run(NODE, "--frozen-intrinsics", "load.js", folder=project) == "loaded\n"


def compile_consumer(
    package: Package, project: Path, compiler: str, options: dict[str, Any]
) -> None:
    """Compile consumer.ts as strictly as TypeScript can, the package's declarations with it."""
    configuration = {
        "compilerOptions": {
            "target": "es2022",
            "strict": True,
            "exactOptionalPropertyTypes": True,
            "noUncheckedIndexedAccess": True,
            "skipLibCheck": False,
            "noEmit": True,
            "typeRoots": [str(package.folder / "node_modules" / "@types")],
            **options,
        },
        "files": ["consumer.ts"],
    }
    (project / "tsconfig.json").write_text(json.dumps(configuration), encoding="utf-8")
    consumer = Path(__file__).with_name("consumer.ts").read_text(encoding="utf-8")
    (project / "consumer.ts").write_text(consumer, encoding="utf-8")
    package.run_tool(f"{compiler}/bin/tsc", folder=project)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "resolution",
    [
        {"module": "nodenext", "moduleResolution": "nodenext"},
        {"module": "esnext", "moduleResolution": "bundler"},
    ],
    ids=["nodenext", "bundler"],
)
@pytest.mark.parametrize("place", [IN_NODE, IN_BROWSERS], ids=["node", "browsers"])
def test_typescript_compiles_an_app_and_refuses_its_mistakes(
    package, project, compiler, resolution, place
):
    """Every line of consumer.ts that must not compile says so by @ts-expect-error."""
    compile_consumer(package, project, compiler, {**resolution, **place})
