import json

import pytest
from click.testing import CliRunner

from hubbub.decoder import compare_metric
from hubbub.decoder.cli import main
from hubbub.decoder.comparing import group_source
from hubbub.decoder.reports import StoredReports
from hubbub.protocol import HubbubError, OptionError
from stored_metrics import DAYS, METRICS, NAMES, Stored

FIRST, REST = "2026-11-01", "2026-11-02..2026-11-03"


@pytest.fixture(scope="module")
def themes(tmp_path_factory):
    metric, value, _ = METRICS["enum"]
    return Stored(tmp_path_factory.mktemp("themes"), metric, value)


def run(stored, *arguments):
    fixed = ["compare", stored.metric.name, "--metrics", str(stored.registry)]
    return CliRunner().invoke(
        main, [*fixed, "--store", stored.url, "--min-reports", "100", *arguments]
    )


def test_two_periods_of_a_store_are_compared(themes, tmp_path):
    file = tmp_path / "found.json"
    result = run(themes, "--control", FIRST, "--treatment", REST, "--output", str(file))
    assert result.exit_code == 0, result.output
    assert "0 of 3 rows at a false discovery rate of at most 0.05" in result.output
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["comparison"]["control_reports"] == 2_000
    assert document["comparison"]["treatment_reports"] == 4_000
    assert [row["category"] for row in document["rows"]] == ["a", "b", "c"]
    assert not any(row["differs"] for row in document["rows"])
    assert document["provenance"]["days"] == f"{FIRST} and 2026-11-02 to 2026-11-03"


def test_another_store_that_differs_is_seen_to(themes, tmp_path):
    other = Stored(tmp_path, themes.metric, "a")
    result = run(themes, "--control", "..2026-11-03", "--treatment", other.url, "--output", "-")
    assert result.exit_code == 0, result.output
    header, *rows = (line.split(",") for line in result.stdout.splitlines())
    differs = {row[0]: row[header.index("differs")] for row in rows}
    assert differs == {"a": "true", "b": "true", "c": "false"}


def test_python_gives_what_the_command_writes(themes):
    found = compare_metric(
        "theme", FIRST, REST, metrics=themes.registry, store=themes.url, min_reports=100
    )
    assert found["category"] == ["a", "b", "c"]
    assert len(found.charts[0].rows) == 3
    assert "No difference between the groups is seen." in found.report().headline


def test_strings_are_detected_in_both_groups_together(tmp_path):
    metric, value, _ = METRICS["string"]
    stored = Stored(tmp_path, metric, value)
    found = compare_metric(
        "words", FIRST, REST, metrics=stored.registry, store=stored.url, candidates=NAMES,
        min_reports=100,
    )  # fmt: skip
    assert found["string"] == [value]
    assert found["differs"] == [False]
    assert found["control"][0] == pytest.approx(0.5, abs=0.1)


def test_a_group_with_too_few_reports_is_refused(themes):
    with pytest.raises(HubbubError, match="2,000"):
        compare_metric(
            "theme", FIRST, REST, metrics=themes.registry, store=themes.url, min_reports=3_000
        )


def test_types_without_groups_say_so(tmp_path):
    metric, value, _ = METRICS["joint"]
    stored = Stored(tmp_path, metric, value)
    with pytest.raises(OptionError, match="is of type 'joint'; groups are compared of types"):
        compare_metric(
            metric.name, FIRST, REST, metrics=stored.registry, store=stored.url, min_reports=100
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", StoredReports("here", DAYS[0], DAYS[0])),
        ("2026-11-01..2026-11-02", StoredReports("here", DAYS[0], DAYS[1])),
        ("2026-11-01..", StoredReports("here", DAYS[0], None)),
        ("..2026-11-02", StoredReports("here", None, DAYS[1])),
        ("..", StoredReports("here")),
        ("parquet:exports/2026-11-01", StoredReports("parquet:exports/2026-11-01")),
        ("postgresql://me@host/x", StoredReports("postgresql://me@host/x")),
        (
            "postgresql://me@host/x@2026-11-01..",
            StoredReports("postgresql://me@host/x", DAYS[0], None),
        ),
    ],
)
def test_groups_are_days_of_a_store(text, expected):
    assert group_source("control", text, "here") == expected


def test_a_stores_password_is_in_no_result(themes):
    result = run(themes, "--control", FIRST, "--treatment", "postgresql://me:secret@127.0.0.1:1/x")
    assert result.exit_code == 1
    assert "secret" not in result.output
