"""Provenance names what a result was made of, and nothing of the run that made it."""

import hashlib
import json
import os
from pathlib import Path

from click.testing import CliRunner

from factories import make_params, registry_toml
from hubbub.decoder.cli import main
from hubbub.reporting import file_source, parameters_digest
from unit.decoder.stores import filled_store, plausible_records


def test_digests_are_those_of_the_files(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(b"a\nb\n")
    source = file_source("candidates", str(path))
    assert (source.role, source.name) == ("candidates", "names.txt")
    assert source.sha256 == hashlib.sha256(b"a\nb\n").hexdigest()


def test_parameters_have_one_form_however_they_are_written():
    form = hashlib.sha256(b'{"f":0.5,"k":8.0}').hexdigest()
    assert parameters_digest({"k": 8, "f": 0.5}) == parameters_digest({"f": 0.5, "k": 8.0}) == form
    ours = parameters_digest(make_params()._asdict())
    assert ours != parameters_digest(make_params(f=0.25)._asdict())


def decoded(folder: Path, *options: str, given: str = "") -> dict[str, object]:
    """Decode a store's reports, and return the provenance that the JSON tells."""
    if not (folder / "hubbub.db").exists():
        filled_store(folder, plausible_records())
        (folder / "metrics.toml").write_text(registry_toml(), encoding="utf-8")
        (folder / "names.txt").write_text("a\nb\n", encoding="utf-8")
    output = os.fspath(folder / "result.json")
    where = ["--metrics", f"{folder}/metrics.toml", "--store", f"sqlite:///{folder}/hubbub.db"]
    quick = ["--method", "regression"]  # likelihood takes eight times as long
    arguments = ["decode", "homepage", *where, *quick, "--output", output, *options]
    result = CliRunner().invoke(main, arguments, input=given)
    assert result.exit_code == 0, result.stderr
    told: dict[str, object] = json.loads(Path(output).read_text(encoding="utf-8"))["provenance"]
    return told


def test_every_input_and_setting_is_named_without_its_folder(tmp_path):
    listed = ("--candidates", f"{tmp_path}/names.txt")
    told = decoded(tmp_path, *listed, "--alpha", "0.01", "--since", "2026-10-01")
    assert told["metric"] == "homepage"
    assert told["metric_version"] == 1
    assert told["days"] == "2026-10-01 to 2026-11-01"
    assert told["seed"] == "none: decoding is deterministic"
    assert str(tmp_path) not in json.dumps(told)
    settings, versions, sources = told["settings"], told["versions"], told["sources"]
    assert isinstance(settings, dict)
    assert settings["alpha"] == "0.01"
    assert isinstance(versions, dict)
    assert set(versions) == {"hubbub", "numpy", "scipy", "python"}
    assert isinstance(sources, list)
    assert [source["role"] for source in sources] == ["candidates", "counts"]
    assert sources[0]["sha256"] == hashlib.sha256(b"a\nb\n").hexdigest()
    assert decoded(tmp_path, *listed, "--alpha", "0.01", "--since", "2026-10-01") == told


def test_map_is_named_in_place_of_candidates(tmp_path):
    path = tmp_path / "map.csv"
    cells = [f"{128 * cohort + 1},{128 * cohort + 2}" for cohort in range(64)]
    path.write_text("a," + ",".join(cells) + "\n", encoding="utf-8")
    sources = decoded(tmp_path, "--map", str(path))["sources"]
    assert isinstance(sources, list)
    assert [source["role"] for source in sources] == ["map", "counts"]
    assert sources[0]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
