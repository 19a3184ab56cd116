"""Reports and batches as JSON."""

from hypothesis import given, strategies as st

from factories import make_report
from hubbub.client import Batch, batch_to_json
from hubbub.protocol import EMPTY_BODY_BYTES, json_size, new_batch_id


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
