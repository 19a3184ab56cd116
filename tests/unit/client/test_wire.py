"""Reports and batches as JSON."""

from __future__ import annotations

import base64
import json
import re

import pytest

from factories import make_report
from hubbub.client import Batch, batch_to_json
from hubbub.protocol.wire import batch_from_json, new_batch_id


def test_batch_is_the_json_of_the_protocol() -> None:
    batch = Batch((make_report(cohort=17, bits=0b1000_0000_0001),), "ab" * 16)
    assert json.loads(batch_to_json(batch)) == {
        "batch_id": "ab" * 16,
        "reports": [
            {
                "metric": "homepage",
                "version": 1,
                "cohort": 17,
                "bits": base64.b64encode(bytes([1, 8, *[0] * 14])).decode(),
            }
        ],
    }


def test_batch_comes_back_from_its_json() -> None:
    batch = Batch((make_report(cohort=17, bits=0b1000_0000_0001), make_report()))
    assert batch_from_json(batch_to_json(batch)) == batch


@pytest.mark.parametrize(
    "change",
    [
        {"batch_id": None},
        {"batch_id": ""},
        {"batch_id": 7},
        {"later": 1},
        {"reports": None},
        {"reports": [7]},
        {"reports": [{"metric": "homepage", "version": 1, "cohort": 0}]},
        {"reports": [{"metric": "homepage", "version": 1, "cohort": 0, "bits": "AA", "value": 1}]},
        {"reports": [{"metric": "homepage", "version": 1, "cohort": 0, "bits": "A?A="}]},
    ],
)
def test_json_that_has_less_or_more_than_a_batch_is_none(change: dict[str, object]) -> None:
    document = json.loads(batch_to_json(Batch((make_report(),)))) | change
    with pytest.raises(ValueError, match=r"body|base64|padding"):
        batch_from_json(json.dumps(document).encode())


def test_batch_id_is_drawn_once_a_batch() -> None:
    ids = {Batch((make_report(),)).batch_id for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", batch_id) for batch_id in ids)


def test_batch_keeps_its_id_through_every_serialization() -> None:
    batch = Batch((make_report(),))
    assert batch_to_json(batch) == batch_to_json(batch)


def test_new_ids_have_128_random_bits() -> None:
    """Over 200 ids every one of the 128 bits takes both values; P(not) < 256 / 2^200."""
    ids = [int(new_batch_id(), 16) for _ in range(200)]
    ever_set = ever_clear = 0
    for number in ids:
        ever_set |= number
        ever_clear |= ~number
    assert ever_set & ever_clear & (2**128 - 1) == 2**128 - 1
