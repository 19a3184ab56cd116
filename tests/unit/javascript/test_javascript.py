"""The JavaScript client's own tests, and that it needs nothing but itself."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from evaluation.reference import protocol
from hubbub.client import Registry
from unit.javascript.node import CLIENT, run_node, run_script

SOURCES = sorted((CLIENT / "src").glob("*.js"))
IMPORT = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["']([^"']+)["']""")
NODE_ONLY = "node-storage.js"
# What any page has: a script that finds no name of Node's can't lean on one.
BROWSER_NAMES = """
for (const name of ["process", "Buffer", "global", "require", "setImmediate"]) {
  Object.defineProperty(globalThis, name, { get() { throw new Error(`${name} was used`); } });
}
"""


def sources_of_the_page() -> list[Path]:
    return [path for path in SOURCES if path.name != NODE_ONLY]


def code(path: Path) -> str:
    """Return a module without its comments, in which types are imported."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_clients_own_tests_pass_and_none_is_skipped():
    tests = sorted((CLIENT / "test").glob("*.test.js"))
    assert len(tests) > 10
    # In one process: starting one for each file takes a third of the time.
    done = run_node("--test", "--test-isolation=none", "--test-reporter=tap", *tests)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {key: int(n) for key, n in re.findall(r"^# (\w+) (\d+)$", done.stdout, re.MULTILINE)}
    assert counts["pass"] == counts["tests"] > 100
    assert counts["skipped"] == counts["todo"] == counts["cancelled"] == 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_module_imports_nothing_from_outside(path):
    for target in IMPORT.findall(code(path)):
        if target.startswith("./"):
            assert (path.parent / target).is_file()
        else:
            assert (path.name, target.split("/")[0][:5]) == (NODE_ONLY, "node:"), target


def test_package_needs_no_other_and_exports_what_is_there():
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert (package["name"], package["type"]) == ("hubbub-client", "module")
    assert [key for key in package if key.endswith("ependencies")] == ["devDependencies"]
    for target in package["exports"].values():
        assert (CLIENT / target["default"]).is_file()


def test_browser_code_uses_no_node_names(tmp_path):
    program = tmp_path / "page.mjs"
    index = (CLIENT / "src" / "index.js").as_uri()
    program.write_text(
        f'{BROWSER_NAMES}\nconst names = await import("{index}");\n'
        "const { Encoder, makeRegistry } = names;\n"
        "const entry = { version: 1, type: 'boolean', description: 'd', owner: 'o',"
        " expires: '2099-12-31', f: 0.5, p: 0.25, q: 0.75 };\n"
        "const { metrics } = makeRegistry({ application: 'a', metrics: { on: entry } });\n"
        "const encoder = new Encoder(metrics.get('on'), new Uint8Array(32));\n"
        "console.log(encoder.encode(true).bits.length, Object.keys(names).join());\n",
        encoding="utf-8",
    )
    done = run_node(program)
    assert done.returncode == 0, done.stderr
    length, names = done.stdout.split()
    assert length == "1"
    assert {"Encoder", "Telemetry", "browserStorage", "makeRegistry"} <= set(names.split(","))


def test_client_never_asks_for_unsafe_randomness():
    for path in SOURCES:
        assert "Math.random" not in code(path), path.name
    assert [p.name for p in sources_of_the_page() if "getRandomValues" in code(p)] == ["coins.js"]


REGISTRY_PROGRAM = """
import { makeRegistry } from "./src/index.js";
const metrics = [...makeRegistry(job).metrics.values()];
const answer = metrics.map((m) => [m.name, m.params.k, m.epsilonReport]);
"""


def test_the_example_registry_means_the_same_in_both_clients(request):
    path = request.config.rootpath / "docs" / "examples" / "metrics.toml"
    found = run_script(REGISTRY_PROGRAM, tomllib.loads(path.read_text(encoding="utf-8")))
    expected = [
        (name, metric.params.k, pytest.approx(metric.epsilon_report))
        for name, metric in Registry.load(path).items()
    ]
    assert [tuple(row) for row in found] == expected


APPLICATIONS = [
    "com.example.browser",
    "Z\u00fcrich \u65e5\u672c",
    "Zu\u0308rich",
    "\U0001f41d " * 40,
]
HOMEPAGE: dict[str, Any] = {
    "version": 1,
    "type": "string",
    "description": "Home pages",
    "owner": "privacy@example.com",
    "expires": "2099-12-31",
    "k": 128,
    "h": 2,
    "m": 64,
    "f": 0.5,
    "p": 0.25,
    "q": 0.75,
}
STREAM_PROGRAM = """
import { Encoder, makeRegistry } from "./src/index.js";
const answer = job.map(({ secret, registry }) => {
  const bytes = Uint8Array.from(Buffer.from(secret, "hex"));
  const encoder = new Encoder(makeRegistry(registry).metrics.get("homepage"), bytes);
  const { cohort, permanent } = encoder.answer("example.com");
  return [cohort, Buffer.from(permanent).toString("hex")];
});
"""


def test_applications_of_any_language_have_the_same_streams_in_both_clients():
    secret = bytes(range(32))
    jobs = [
        {
            "secret": secret.hex(),
            "registry": {"application": name, "metrics": {"homepage": HOMEPAGE}},
        }
        for name in APPLICATIONS
    ]
    expected = []
    for name in APPLICATIONS:
        domain = protocol.Domain(name, "homepage", 1)
        cohort = protocol.cohort(secret, domain, m=64)
        positions = protocol.bloom_positions("example.com", cohort, k=128, h=2)
        bits = protocol.bits_to_bytes(positions, k=128)
        permanent = protocol.permanent(secret, domain, cohort, bits, 0.25, 0.25)
        expected.append([cohort, permanent.hex()])
    assert len({permanent for _, permanent in expected}) == len(APPLICATIONS)
    assert run_script(STREAM_PROGRAM, jobs) == expected
