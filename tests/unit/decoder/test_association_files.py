"""google/rappor's schemas and reports of several variables: read, or refused with the place."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from hubbub.inference.association.reports import Variable
from hubbub.inference.errors import InputError
from hubbub.inference.params import DecodingParams
from hubbub.rappor.association_files import read_reports, read_schema

PARAMS = DecodingParams(k=5, h=1, m=3, f=0.0, p=0.25, q=0.75)
VARIABLES = (Variable("page", "string"), Variable("flag", "boolean"))
SCHEMA = "metric,var,var_type,params\nm,page,string,numbers\nm,flag,boolean,numbers\n"


def schema(folder: Path, text: str) -> Path:
    path = folder / "rappor-vars.csv"
    path.write_text(text, encoding="utf-8")
    return path


def reports(folder: Path, text: str) -> Path:
    path = folder / "reports.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_schema_names_variables_and_the_file_of_their_parameters(tmp_path):
    found = read_schema(schema(tmp_path, SCHEMA.replace(",", ", ")))
    assert (found.metric, found.variables) == ("m", VARIABLES)
    assert found.params == tmp_path / "numbers.csv"


def test_one_of_several_metrics_is_asked_for(tmp_path):
    path = schema(tmp_path, SCHEMA + "n,a,string,x\nn,b,string,x\n")
    assert [each.name for each in read_schema(path, "n").variables] == ["a", "b"]
    with pytest.raises(InputError, match=r"metrics 'm', 'n'; expected METRIC"):
        read_schema(path)
    with pytest.raises(InputError, match=r"no metric 'o'; expected one of: 'm', 'n'"):
        read_schema(path, "o")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"empty; expected the header metric,var,var_type,params"),
        ("metric,var\n", r"line 1: 'metric,var'; expected the header"),
        ("metric,var,var_type,params\n", r"metrics none; expected METRIC"),
        (SCHEMA + "m,x\n", r"line 4: 2 columns; expected 4"),
        (SCHEMA.replace("m,flag,boolean,numbers\n", ""), r"1 variables; expected 2 or 3"),
        (SCHEMA.replace("boolean", "float"), r"line 3, column 3: var_type = 'float'"),
        (SCHEMA.replace("flag,", "page,"), r"line 3, column 2: var = 'page'"),
        (SCHEMA.replace("flag,", "cohort,"), r"line 3, column 2: var = 'cohort'"),
        (SCHEMA.replace("boolean,numbers", "boolean,other"), r"line 3, column 4: params = 'other'"),
        (SCHEMA.replace("numbers", "../numbers"), r"line 2, column 4: params = '../numbers'"),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_schema(schema(tmp_path, text))


def test_the_last_character_is_the_lowest_bit_and_equal_reports_are_kept_once(tmp_path):
    text = "client,cohort,page,flag\nc0,2,00001,1\nc1,0,10100,0\n\nc2,2,00001,1\n"
    found = read_reports(reports(tmp_path, text), VARIABLES, PARAMS)
    assert found.total == 3
    assert found.starts.tolist() == [0, 1, 1, 2]
    assert found.copies.tolist() == [1.0, 2.0]
    assert found.bits[0].tolist() == [[0b10100], [0b00001]]
    assert found.bits[1].tolist() == [[0], [1]]


def test_columns_may_come_in_any_order_and_packed(tmp_path):
    path = tmp_path / "reports.csv.gz"
    path.write_bytes(gzip.compress(b"flag,page,extra,cohort\n1,00010,x,1\n"))
    found = read_reports(path, VARIABLES, PARAMS)
    assert np.diff(found.starts).tolist() == [0, 1, 0]
    assert (found.bits[0].tolist(), found.bits[1].tolist()) == ([[2]], [[1]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"empty; expected a header with cohort, page, flag"),
        ("client,cohort,page\n", r"line 1: the header 'client,cohort,page'; expected one column"),
        ("cohort,page,flag,flag\n", r"expected one column 'flag'"),
        ("cohort,page,flag\n", r"no reports below the header"),
        ("cohort,page,flag\n0,00000\n", r"line 2: 2 columns; expected 3"),
        ("cohort,page,flag\n0,00000,1\n3,00000,1\n", r"line 3, column 1: cohort = '3'; .* 0 to 2"),
        ("cohort,page,flag\n-1,00000,1\n", r"line 2, column 1: cohort = '-1'"),
        ("cohort,page,flag\n0,0000,1\n", r"line 2, column 2: page = '0000'; expected k = 5 char"),
        ("cohort,page,flag\n0,00002,1\n", r"line 2, column 2: page = '00002'"),
        ("cohort,page,flag\n0,00000,\n", r"line 2, column 3: flag = ''; expected a boolean's 1"),
        ("cohort,page,flag\n0,00000,TRUE\n", r"line 2, column 3: flag = 'TRUE'"),
        ("cohort,page,flag\n0,0000٠,1\n", r"line 2, column 2: page"),
    ],
)
def test_a_wrong_report_is_refused_with_its_place(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_reports(reports(tmp_path, text), VARIABLES, PARAMS)
