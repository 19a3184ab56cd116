"""Sealed reports: keys, numbers, payloads, records; against vectors, RFC 9180 and garbage."""

import datetime as dt
import secrets
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.reference import sealed as reference
from factories import APPLICATION, make_metric, make_params, make_registry, make_report, make_secret
from hubbub.client import Batch, Report
from hubbub.client.sealing import Sealer, number_reports
from hubbub.protocol.dimensions import read_dimensions
from hubbub.protocol.errors import HubbubError, NotOpenedError, SealedError, UnknownKeyError
from hubbub.protocol.hpke import Opener, PrivateKey, seal
from hubbub.protocol.sealed import (
    OVERHEAD,
    PAYLOAD_SIZES,
    SealedReport,
    SealingKey,
    key_in_force,
    least_payload,
    read_payload,
    read_sealed,
    write_payload,
    write_sealed,
)
from unit.client.test_vectors import Row, vectors

TODAY = dt.date(2026, 3, 14)
KEY = PrivateKey.parse("hub_unseal_20260314_aJKoyzjzEsWmJr328gYDcGFehvVNEtWcThzFnxmh2ks")
OPENER = Opener([KEY], APPLICATION)
REGISTRY = make_registry()
SECRET = make_secret()


def reports_of(row: Row) -> tuple[Report, ...]:
    return tuple(Report(**(r | {"bits": bytes.fromhex(r["bits"])})) for r in row["reports"])


def private_key(row: Row) -> PrivateKey:
    key = PrivateKey(SealingKey.parse(row["key"]), bytes.fromhex(row["private_key"]))
    assert PrivateKey.parse(str(key)) == key
    return key


def opened(body: bytes, opener: Opener = OPENER, key: PrivateKey = KEY) -> list[SealedReport]:
    """Return what is sealed in a body, in the order of the numbers."""
    batch = read_sealed(body, [key.public.key_id])
    width = batch.payload + OVERHEAD
    starts = range(0, len(batch.records), width)
    return sorted(opener.open(batch.records[start : start + width]) for start in starts)


def test_reference_encrypts_as_rfc_9180_does():
    """Its appendix A.1.1: base mode of the suite that is used here."""
    sealing = reference.setup(
        bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"),
        b"Ode on a Grecian Urn",
        bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
    )
    assert sealing.enc.hex() == "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    assert sealing.key.hex() == "4531685d41d65f03dc48f6b8302c05b0"
    assert sealing.nonce.hex() == "56d890e5accaaf011cff4b7d"
    sealed = reference.encrypt(sealing, b"Beauty is truth, truth beauty", b"Count-0")
    assert sealed.hex() == (
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )


@pytest.mark.parametrize("row", vectors("sealed"), ids=lambda row: row["name"])
def test_vectors_are_sealed_and_opened_alike(row):
    key, reports, batch_id = private_key(row), reports_of(row), row["batch_id"]
    assert key.public.key_id.hex() == row["key_id"]
    numbered = number_reports(reports, batch_id, bytes.fromhex(row["secret"]), row["application"])
    payloads = [bytes.fromhex(payload) for payload in row["payloads"]]
    assert [write_payload(report).ljust(len(payloads[0]), b"\0") for report in numbered] == payloads
    opener = Opener([key], row["application"])
    records = [bytes.fromhex(record) for record in row["records"]]
    assert [opener.open(record) for record in records] == numbered
    assert write_sealed(batch_id, records).hex() == row["body"]
    batch = read_sealed(bytes.fromhex(row["body"]), [key.public.key_id])
    assert (batch.batch_id.hex(), batch.payload) == (batch_id, len(payloads[0]))
    metrics = [
        make_metric(
            m["name"],
            params=make_params(k=m["k"]),
            dimensions=tuple(read_dimensions("row", m.get("dimensions", {})).values()),
        )
        for m in row["metrics"]
    ]
    assert least_payload(metrics) == len(payloads[0])
    again = seal(numbered, key.public, row["application"], least_payload(metrics))
    assert [opener.open(record) for record in again] == numbered


def test_key_of_another_application_day_or_person_opens_nothing():
    report = SealedReport(bytes(16), "homepage", 1, bytes(18))
    (record,) = seal([report], KEY.public, APPLICATION, 64)
    later = PrivateKey(KEY.public._replace(last_day=dt.date(2026, 3, 15)), KEY.private)
    for opener, its_key in (
        (Opener([KEY], "com.example.other"), KEY),
        (Opener([later], APPLICATION), later),
        (Opener([stranger := PrivateKey.generate(TODAY)], APPLICATION), stranger),
    ):
        with pytest.raises(NotOpenedError):
            opener.open(its_key.public.key_id + record[8:])


@given(at=st.integers(0, 119), flip=st.integers(1, 255))
def test_changed_records_do_not_open(at, flip):
    (record,) = seal([SealedReport(bytes(16), "homepage", 1, bytes(18))], KEY.public, "a", 64)
    changed = record[:at] + bytes([record[at] ^ flip]) + record[at + 1 :]
    opener = Opener([KEY], "a")
    if at < 8:
        assert not opener.knows(changed)
    else:
        with pytest.raises(NotOpenedError):
            opener.open(changed)


@given(st.binary(min_size=64, max_size=64) | st.binary(max_size=70))
def test_every_payload_is_a_report_in_its_one_form_or_refused(payload):
    try:
        report = read_payload(payload)
    except SealedError:
        return
    assert write_payload(report).ljust(len(payload), b"\0") == payload


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (bytes(63), "payload of 63 bytes"),
        (bytes(64), "metric: must be a name in ASCII"),
        (bytes(16) + b"\x01\xff" + bytes(46), "metric: must be a name in ASCII"),
        (bytes(16) + b"\x2f" + b"m" * 47, "metric: must be a name in ASCII"),
        (bytes(16) + b"\x01m\x01\x00\x00\x00" + bytes(42), "bits: 0 bytes; must be at least 1"),
        (bytes(16) + b"\x01m\x01\x00\x00\x00\x27\x00" + bytes(40), "bits: 39 bytes; must be"),
        (bytes(16) + b"\x01m\x01\x00\x00\x00\x01\x00" + bytes(39) + b"x", "padding: must be zer"),
    ],
)
def test_faults_of_payloads_are_named(payload, reason):
    with pytest.raises(SealedError, match=reason):
        read_payload(payload)


@given(
    st.binary(min_size=16, max_size=16),
    st.text("abc_-09", min_size=1, max_size=64),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=3, max_size=514),
)
def test_payloads_are_read_as_they_were_written(number, metric, version, record):
    report = SealedReport(number, metric, version, record)
    payload = write_payload(report)
    size = next(size for size in PAYLOAD_SIZES if size >= len(payload))
    assert read_payload(payload.ljust(size, b"\0")) == report
    with pytest.raises(SealedError):
        read_payload(payload[:-1])


def test_a_report_is_numbered_alike_in_all_attempts_and_never_like_another():
    batch = Batch((make_report(bits=1), make_report(bits=2), make_report(bits=1)))
    sealer = Sealer(str(KEY.public), REGISTRY)
    bodies = [sealer.seal(batch, SECRET, TODAY) for _ in range(2)]
    ids = {read_sealed(body, [KEY.public.key_id]).batch_id for body in bodies}
    assert len(ids) == 2  # nothing of one attempt is in another
    assert bytes.fromhex(batch.batch_id) not in ids
    first, second = map(opened, bodies)
    assert first == second
    assert len({report.number for report in first}) == 3
    shorter = Batch((batch.reports[0], batch.reports[2]), batch.batch_id)
    assert set(opened(sealer.seal(shorter, SECRET, TODAY))) < set(first)
    numbers = {report.number for report in first}
    for other, secret in (
        (Batch(batch.reports), SECRET),  # the same reports under another id
        (batch, make_secret(1)),
    ):
        others = {report.number for report in opened(sealer.seal(other, secret, TODAY))}
        assert not numbers & others


def test_records_of_all_metrics_have_one_length_and_share_nothing_but_the_key():
    metrics = [
        make_metric("a", params=make_params(k=8)),
        make_metric("b" * 64, params=make_params(k=1024)),
    ]
    registry = make_registry(*metrics)
    bodies = [
        Sealer(str(KEY.public), registry).seal(batch, SECRET, TODAY)
        for batch in (
            Batch((make_report(metrics[0]),) * 2),
            Batch((make_report(metrics[1]), make_report(metrics[0]))),
        )
    ]
    assert len(bodies[0]) == len(bodies[1])
    batch = read_sealed(bodies[0], [KEY.public.key_id])
    one, other = batch.records[: len(batch.records) // 2], batch.records[len(batch.records) // 2 :]
    assert one[:8] == other[:8] == KEY.public.key_id
    assert one[8:40] != other[8:40]


def test_report_of_a_wider_metric_than_the_registry_has_widens_its_batch():
    """What waits on disk may be from before an update."""
    wide = make_metric("before", params=make_params(k=1024))
    body = Sealer(str(KEY.public), REGISTRY).seal(
        Batch((make_report(wide), make_report())), SECRET, TODAY
    )
    assert read_sealed(body, [KEY.public.key_id]).payload == 256
    assert {report.metric for report in opened(body)} == {"before", "homepage"}


def test_reports_are_sealed_to_the_key_that_ends_first_of_those_in_force():
    days = [dt.date(2026, 3, day) for day in (20, 14, 17)]
    keys = [PrivateKey.generate(day).public for day in days]
    ends = [key_in_force(keys, dt.date(2026, 3, day)) for day in (13, 14, 15, 17, 18, 20, 21)]
    assert [key and key.last_day.day for key in ends] == [14, 14, 17, 17, 20, 20, None]
    sealer = Sealer([str(key) for key in keys], REGISTRY)
    batch = Batch((make_report(),))
    assert read_sealed(sealer.seal(batch, SECRET, dt.date(2026, 3, 15)), [keys[2].key_id])
    with pytest.raises(SealedError, match="the last one ended on 2026-03-20"):
        sealer.seal(batch, SECRET, dt.date(2026, 3, 21))


PUBLIC, PRIVATE = str(KEY.public), str(KEY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hub_seal_",
        PRIVATE,
        PUBLIC[:-1],
        PUBLIC + "A",
        PUBLIC.replace("20260314", "20260230"),
        PUBLIC.replace("20260314", "2026-3-14"),
        PUBLIC.upper(),
        "hub_seal_20260314_" + "A" * 42 + "B",  # spare bits
    ],
)
def test_texts_that_are_no_public_keys_are_refused_without_repeating_them(text):
    with pytest.raises(SealedError, match=r"^key: ") as caught:
        SealingKey.parse(text)
    assert PRIVATE[-43:] not in str(caught.value)
    assert ("hub_unseal_..." in str(caught.value)) == (text == PRIVATE)


def test_secret_is_in_no_representation_and_no_message():
    assert PRIVATE[-43:] not in repr(KEY)
    with pytest.raises(SealedError) as caught:
        PrivateKey.parse(PRIVATE[:-1] + "*")
    assert PRIVATE[19:40] not in str(caught.value)


@pytest.mark.parametrize("keys", [[], ["hub_seal_20260314_" + "A" * 43], [PUBLIC, "x"]])
def test_keys_that_nothing_can_be_sealed_to_are_found_out_at_once(keys):
    """The second is the point of order one, whose shared secret everybody knows."""
    with pytest.raises(SealedError):
        Sealer(keys, REGISTRY)


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hpke", None)
    with pytest.raises(HubbubError, match=r"pip install 'hubbub\[sealed\]'"):
        Sealer(PUBLIC, REGISTRY)


def test_nothing_is_sealed_under_numbers_that_anybody_can_compute():
    with pytest.raises(SealedError, match="secret: empty"):
        Sealer(PUBLIC, REGISTRY).seal(Batch((make_report(),)), b"", TODAY)


def sealed_body(n_records: int = 3) -> bytes:
    batch = Batch(tuple(make_report(bits=i) for i in range(n_records)))
    return Sealer(PUBLIC, REGISTRY).seal(batch, SECRET, TODAY)


def faulty_bodies() -> dict[str, bytes]:
    body = sealed_body()
    head, rows = body[:21], [body[i : i + 120] for i in range(21, len(body), 120)]
    return {
        "empty": b"",
        "cut in the head": body[:20],
        "format": b"\x02" + body[1:],
        "payload": body[:17] + b"\x41\x00" + body[19:],
        "no record": body[:19] + b"\x00\x00",
        "fewer records": body[:-120],
        "more records": body + rows[2],
        "cut in a record": body[:-1],
        "descending": head + rows[1] + rows[0] + rows[2],
        "twice": head + rows[0] + rows[0] + rows[2],
    }


@pytest.mark.parametrize("why", faulty_bodies())
def test_other_bodies_are_refused(why):
    with pytest.raises(SealedError):
        read_sealed(faulty_bodies()[why], [KEY.public.key_id])


def test_records_of_one_unknown_key_refuse_the_batch():
    body, stranger = sealed_body(), PrivateKey.generate(TODAY)
    with pytest.raises(UnknownKeyError):
        read_sealed(body, [stranger.public.key_id])
    mixed = body[:21] + b"".join(
        sorted([*[body[i : i + 120] for i in (21, 141)], secrets.token_bytes(120)])
    )
    with pytest.raises(UnknownKeyError):
        read_sealed(mixed, [KEY.public.key_id])


def test_empty_batches_are_not_written():
    with pytest.raises(SealedError):
        write_sealed("00" * 16, [])


def test_the_largest_report_there_may_be_has_room():
    report = SealedReport(bytes(16), "m" * 64, 2**31 - 1, bytes(2 + 512))
    assert len(write_payload(report)) <= PAYLOAD_SIZES[-1]
