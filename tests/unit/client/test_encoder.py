"""The encoder's law in structure: what depends on what. Frequencies are in tests/statistical."""

import os
import subprocess
import sys

import pytest

from factories import make_metric, make_params, make_secret, report_bits, seeded_stream
from hubbub.client import Encoder, StateError
from hubbub.protocol import bloom_bits

BITS = bloom_bits("example.com", 3, make_params())

IN_ANOTHER_PROCESS = """
import sys
sys.path.insert(0, {tests!r})
from factories import make_metric, make_secret
from hubbub.client import Encoder
encoder = Encoder(make_metric(), make_secret(1))
print(encoder.cohort, encoder.permanent_response({bits}).bits)
"""


def permanent(client: int = 1, **changes: object) -> int:
    metric = make_metric(**changes)  # type: ignore[arg-type]
    return Encoder(metric, make_secret(client)).permanent_response(BITS).bits


def test_permanent_response_is_the_same_in_every_process(request):
    tests = str(request.config.rootpath / "tests")
    script = IN_ANOTHER_PROCESS.format(tests=tests, bits=BITS)
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        )
        cohort, bits = map(int, done.stdout.split())
        assert cohort == Encoder(make_metric(), make_secret(1)).cohort
        assert bits == permanent()


@pytest.mark.parametrize(
    "other",
    [
        {"client": 2},
        {"name": "search"},
        {"version": 2},
        {"application": "com.example.mail"},
    ],
    ids=str,
)
def test_permanent_responses_of_two_domains_differ(other):
    """128 bits flipped with 1/4 each: P(two independent responses agree) = (10/16)^128 < 1e-26."""
    assert permanent(**other) != permanent()


def test_moving_a_letter_from_metric_to_application_changes_the_domain():
    one = permanent(application="com.example.a", name="bc")
    other = permanent(application="com.example.ab", name="c")
    assert one != other


def test_permanent_responses_to_two_values_differ():
    encoder = Encoder(make_metric(), make_secret())
    other = bloom_bits("example.org", 3, make_params())
    noise = encoder.permanent_response(BITS).bits ^ BITS
    assert encoder.permanent_response(other).bits ^ other != noise


def test_without_permanent_noise_the_permanent_response_is_the_filter():
    encoder = Encoder(make_metric(params=make_params(f=0.0)), make_secret())
    assert encoder.permanent_response(BITS).bits == BITS


def test_report_bears_the_metric_and_the_clients_cohort():
    metric = make_metric(version=7, params=make_params(k=24, m=5))
    encoder = Encoder(metric, make_secret())
    report = encoder.encode("example.com")
    assert (report.metric, report.version) == ("homepage", 7)
    assert report.cohort == encoder.cohort < 5
    assert len(report.bits) == 3


def test_reports_of_one_value_are_drawn_anew():
    """128 bits, each equal in two reports with probability 5/8: P(equal) < 1e-26 a pair."""
    encoder = Encoder(make_metric(), make_secret())
    assert len({encoder.encode("example.com").bits for _ in range(10)}) == 10


def test_report_is_the_instantaneous_response_to_the_permanent_one():
    """With p = 0 and q = 1 the second response is the identity, so the report shows the first."""
    encoder = Encoder(make_metric(params=make_params(p=0.0, q=1.0)), make_secret())
    bits = bloom_bits("example.com", encoder.cohort, encoder.metric.params)
    reported = encoder.encode("example.com").bits
    assert int.from_bytes(reported, "little") == encoder.permanent_response(bits).bits


def test_instantaneous_response_takes_the_stream_that_it_is_given():
    encoder = Encoder(make_metric(), make_secret())
    first = report_bits(encoder, BITS, seeded_stream("a"))
    assert first == report_bits(encoder, BITS, seeded_stream("a"))
    assert first != report_bits(encoder, BITS, seeded_stream("b"))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secret_of_another_size_is_refused(size):
    with pytest.raises(StateError, match=f"secret of {size} bytes: must be 32 bytes"):
        Encoder(make_metric(), bytes(size))
