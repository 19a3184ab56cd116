"""`hubbub-collector init`: a registry that works, from four answers."""

import re

import pytest
from click.testing import CliRunner

from hubbub.client import Registry
from hubbub.collector import main


def init(path, *options, answers=""):
    return CliRunner().invoke(main, ["init", "--output", str(path), *options], input=answers)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ("text", "string"),
        ("yes/no", "enum"),
        ("light, dark,system", "enum"),
        ("-5..60", "number"),
    ],
)
def test_four_answers_give_a_metric_with_planned_parameters(tmp_path, values, name):
    path = tmp_path / "metrics.toml"
    done = init(path, answers=f"org.example.notes\nasked\n{values}\n20000\n")
    assert done.exit_code == 0, done.output
    assert f"hubbub-collector serve --metrics {path}" in done.output
    registry = Registry.load(path)
    metric = registry["asked"]
    assert registry.application == "org.example.notes"
    assert (metric.type.name, metric.mode) == (name, "once")
    assert metric.epsilon_report == pytest.approx(2, abs=0.01)
    assert path.read_text().startswith("#:schema https://")
    keys = [line for line in path.read_text().splitlines() if re.match(r"[kmpq] = ", line)]
    assert keys
    assert all(" # " in line for line in keys)


def test_nothing_is_asked_if_all_is_given_and_a_file_that_exists_is_kept(tmp_path):
    path = tmp_path / "metrics.toml"
    answers = ["--application", "a.b", "--name", "c", "--values", "yes/no", "--clients", "1e4"]
    assert init(path, *answers).exit_code == 0
    written = path.read_bytes()
    again = init(path, *answers)
    assert again.exit_code == 1
    assert again.output.endswith(f"Error: {path}: File exists\n")
    assert path.read_bytes() == written


def test_values_that_make_no_sense_are_asked_again(tmp_path):
    done = init(tmp_path / "m.toml", answers="a.b\nc\nred\nred,blue\n1e4\n")
    assert done.exit_code == 0
    assert "'red' must be text, yes/no, a,b,c or 0..60" in done.output
