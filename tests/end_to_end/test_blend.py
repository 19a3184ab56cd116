"""Some opt in: from their table and the others' reports to one result, by the programs."""

import csv
import json
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import programs
from factories import make_metric, registry_toml
from hubbub.client import RapporParams
from hubbub.decoder import decode_metric
from hubbub.protocol.errors import OptionError
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.records import Records
from hubbub.release.dataset import Dataset
from hubbub.reporting.formats.writers import write_files
from hubbub.simulations.simulated_clients.clients import SimulatedClients, as_records
from unit.decoder.stores import filled_store

SECONDS = 120
PARAMS = RapporParams(128, 2, 64, 0.5, 0.25, 0.75)  # of the factories' metric
SHARES = {"example.com": 0.5, "example.org": 0.25, "example.net": 0.15, "日本語.example": 0.08,
          "rare.example": 0.02}  # fmt: skip
REPORTS, OPTED_IN = 20_000, 6_000


@dataclass(frozen=True, slots=True)
class Collected:
    """A store of reports, a table of the opted-in, and what the curator released of it."""

    folder: Path
    metrics: Path
    store: str
    names: Path
    release: Path

    def decode(self, *options: str) -> subprocess.CompletedProcess[str]:
        where = ("--metrics", f"{self.metrics}", "--store", self.store)
        return programs.run("hubbub.decoder", "decode", "homepage", *where, *options)


def drawn(rng: np.random.Generator, n: int, shares: dict[str, float]) -> list[str]:
    return [str(name) for name in rng.choice(list(shares), n, p=list(shares.values()))]


def write_opted_in(path: Path, held: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "homepage"])
        writer.writerows([f"user {i}", name] for i, name in enumerate(held))
    return path


@pytest.fixture(scope="module")
def collected(tmp_path_factory) -> Collected:
    """Let 20,000 people report and 6,000 opt in; the curator finds names and counts them."""
    folder, rng = tmp_path_factory.mktemp("blend"), np.random.default_rng(16)
    metric = make_metric()
    enum = make_metric("theme", metric_type=EnumType(("light", "dark")))
    metrics = folder / "metrics.toml"
    metrics.write_text(registry_toml(metric, enum), encoding="utf-8")
    held = rng.choice(len(SHARES), REPORTS, p=list(SHARES.values()))
    reported = SimulatedClients(tuple(SHARES), PARAMS, rng).report(held)
    store = filled_store(folder, Records(2 + PARAMS.k // 8, as_records(*reported)))
    data = write_opted_in(folder / "opted-in.csv", drawn(rng, OPTED_IN, SHARES))
    release, names = folder / "release.json", folder / "names.txt"
    done = programs.run(
        "hubbub.release", "candidates", str(data), "--column", "homepage", "--user-column", "user",
        "--epsilon", "1", "--delta", "1e-6", "--output", str(release),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names.write_text(done.stdout + "absent.example\n", encoding="utf-8")
    return Collected(folder, metrics, store, names, release)


@pytest.fixture(scope="module")
def blended(collected) -> tuple[dict[str, Any], str]:
    """Return what the command wrote as JSON, and what it showed."""
    output = collected.folder / "blended.json"
    done = collected.decode(
        "--candidates", f"{collected.names}", "--blend", f"{collected.release}",
        "--output", f"{output}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text(encoding="utf-8")), done.stdout


def test_names_and_counts_of_the_opted_in_are_blended_with_the_others_reports(blended):
    """Shares within six of their standard errors: P(false alarm) < 1e-7.

    The release's halves and noise come from the operating system, all else is seeded.
    """
    document, text = blended
    assert "blended with" in text
    rows = {row["string"]: row for row in document["rows"]}
    assert rows.keys() == {*SHARES, "absent.example"}
    for name, share in SHARES.items():
        row = rows[name]
        assert row["detected"]
        assert abs(row["proportion"] - share) < 6 * row["prop_std_error"]
        assert row["prop_std_error"] < row["central_std_error"]
    assert rows["absent.example"]["central"] is None
    assert document["blend"]["blended"] == len(SHARES)
    sources = {source["role"]: source["name"] for source in document["provenance"]["sources"]}
    assert sources["release"] == "release.json"


def test_a_function_does_what_the_command_does(collected, blended):
    with warnings.catch_warnings():
        # The release's noise is new in each run: by chance the groups seem to differ in 5% of them.
        warnings.filterwarnings("ignore", message="same population")
        result: Any = decode_metric(
            "homepage", metrics=collected.metrics, store=collected.store,
            candidates=collected.names, blend=collected.release,
        )  # fmt: skip
    assert result.document()["blend"]["p_value"] == blended[0]["blend"]["p_value"]


def test_a_group_with_other_tastes_is_told_by_name(collected):
    """Half of the opted-in hold what a quarter of the others do: fifteen standard errors."""
    others = SHARES | {"example.com": 0.25, "example.org": 0.5}
    held = drawn(np.random.default_rng(5), OPTED_IN, others)
    data = write_opted_in(collected.folder / "others.csv", held)
    release = collected.folder / "others.json"
    with Dataset.create(
        data, ledger=collected.folder / "others.db", user_column="user", epsilon=1, delta="1e-6"
    ) as dataset:
        found = dataset.candidates("homepage", epsilon=1, delta="1e-6", counted=True)
    write_files(found, [str(release)])
    with pytest.warns(
        UserWarning, match=r"same population\? NO: the groups differ in example\.com"
    ):
        decode_metric(
            "homepage", metrics=collected.metrics, store=collected.store,
            candidates=collected.names, blend=release,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"metric": "theme"}, "blend=...: must be left out; metrics.theme.type = 'enum'"),
        ({"candidates": ["a"], "by": "day"}, "blend=...: must be left out with by="),
        ({"schema": "vars.csv", "metric": None, "metrics": None, "store": None,
          "reports": "reports.csv"}, "blend=...: must be left out; schema=... comes with"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_blended_that_is_said(collected, options, complaint):
    usual: dict[str, Any] = {
        "metric": "homepage", "metrics": collected.metrics, "store": collected.store,
        "blend": collected.release,
    }  # fmt: skip
    with pytest.raises(OptionError) as caught:
        decode_metric(**(usual | options))
    assert complaint in str(caught.value)
