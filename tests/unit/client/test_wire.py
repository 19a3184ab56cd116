"""Reports and batches as JSON and in the compact form."""

from hypothesis import given, strategies as st

from evaluation.reference import compact as reference
from factories import make_report
from hubbub.client import Batch, Report, batch_to_json
from hubbub.protocol import EMPTY_BODY_BYTES, batch_to_compact, json_size, new_batch_id


@given(st.lists(st.builds(make_report, bits=st.integers(0, 2**128 - 1), cohort=st.integers(0, 63))))
def test_size_that_a_batch_may_have_as_json_is_never_too_small(reports):
    most = EMPTY_BODY_BYTES + sum(json_size(r.metric, len(r.bits)) for r in reports)
    assert most - 20 * len(reports) <= len(batch_to_json(Batch(tuple(reports)))) <= most


def test_new_ids_have_128_random_bits():
    """Over 200 ids every one of the 128 bits takes both values; P(not) < 256 / 2^200."""
    ids = [int(new_batch_id(), 16) for _ in range(200)]
    ever_set = ever_clear = 0
    for number in ids:
        ever_set |= number
        ever_clear |= ~number
    assert ever_set & ever_clear & (2**128 - 1) == 2**128 - 1


_ID = "0123456789abcdef" * 2


def _reports(name: str, version: int, width: int) -> st.SearchStrategy[list[Report]]:
    # Few different ones, so that equal reports and equal cohorts occur.
    bits = st.binary(min_size=width, max_size=width)
    cohorts = st.sampled_from([0, 1, 2, 255, 256, 257, 65_534])
    slices = st.sampled_from(["", "platform=mac", "platform=mac,release=1.2", "release=1.10"])
    reports = st.builds(Report, st.just(name), st.just(version), cohorts, bits, slices)
    return st.lists(reports, max_size=5)


def _batch(reports: list[Report]) -> Batch:
    return Batch(tuple(reports), _ID)


_KINDS = [
    _reports(name, version, width)
    for name, version, width in (("a", 2, 1), ("a", 256, 2), ("ab", 1, 3), ("a-b", 1, 16))
]
batches = (
    st.tuples(*_KINDS)
    .map(lambda kinds: [report for kind in kinds for report in kind])
    .filter(bool)
    .flatmap(st.permutations)
    .map(_batch)
)


@given(batches)
def test_batch_becomes_what_the_reference_makes_of_it(batch):
    body = batch_to_compact(batch)
    reports = [reference.Report(*report) for report in batch.reports]
    expected, _ = reference.encode(batch.batch_id, reports)
    assert body == expected


@given(batches, st.randoms(use_true_random=False))
def test_batch_has_one_form_in_whatever_order_its_reports_are(batch, chance):
    shuffled = list(batch.reports)
    chance.shuffle(shuffled)
    assert batch_to_compact(_batch(shuffled)) == batch_to_compact(batch)
