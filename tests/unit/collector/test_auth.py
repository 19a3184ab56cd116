"""Keys and tokens: who is let in, who isn't, and what that tells about the secrets."""

import datetime as dt
import hashlib
import itertools
import re

import pytest

from hubbub.collector import AdminToken, AuthError, Gate, IngestKey, Purpose, generate_secret

TODAY = dt.date(2027, 6, 15)
YESTERDAY, TOMORROW = TODAY - dt.timedelta(1), TODAY + dt.timedelta(1)
SECRET, HASH = generate_secret("ingest")
OTHER_SECRET, OTHER_HASH = generate_secret("ingest")
PURPOSES: tuple[Purpose, ...] = ("ingest", "admin")


def gate_of(*, anonymous: bool = False, **expiries: dt.date | None) -> Gate:
    """Return a gate with the key `old` for SECRET and `new` for OTHER_SECRET, as far as given."""
    hashes = {"old": HASH, "new": OTHER_HASH}
    keys = {name: IngestKey(sha256=hashes[name], expires=day) for name, day in expiries.items()}
    return Gate(keys, "ingest", anonymous=anonymous)


def refusal_of(gate: Gate, authorization: str | None, today: dt.date = TODAY) -> AuthError:
    with pytest.raises(AuthError) as refusal:
        gate.admit(authorization, today)
    return refusal.value


@pytest.mark.parametrize("purpose", PURPOSES)
def test_secret_is_long_random_and_recognisable(purpose):
    """P(false alarm) < 1e-70: two of 200 secrets share their 256 random bits."""
    made = [generate_secret(purpose) for _ in range(200)]
    assert len({secret for secret, _ in made}) == 200
    for secret, sha256 in made:
        assert re.fullmatch(rf"hub_{purpose}_[A-Za-z0-9_-]{{43}}", secret)
        assert sha256 == hashlib.sha256(secret.encode()).hexdigest()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_known_key_is_let_in_under_its_name(scheme):
    assert gate_of(old=None).admit(f"{scheme} {SECRET}", TODAY) == "old"


def test_key_is_good_to_the_end_of_its_last_day():
    gate = gate_of(old=TODAY)
    assert gate.admit(f"Bearer {SECRET}", YESTERDAY) == "old"
    assert gate.admit(f"Bearer {SECRET}", TODAY) == "old"
    refusal = refusal_of(gate, f"Bearer {SECRET}", TOMORROW)
    assert (refusal.status, refusal.detail) == (401, "Authorization: key expired on 2027-06-15")
    assert refusal.headers["WWW-Authenticate"] == 'Bearer realm="hubbub", error="invalid_token"'


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {SECRET}",
        SECRET,
        f"Bearer {SECRET[:-1]}",
        f"Bearer {SECRET}x",
        f"Bearer {SECRET.swapcase()}",
        f"Bearer {OTHER_SECRET}",
        f"Bearer {HASH}",
        f"Bearer {SECRET}, Bearer {SECRET}",
        "Bearer " + "x" * 100_000,
        "Bearer \udcff\udcfe",
        "Bearer grün",
        "Bearer \x00",
    ],
    ids=itertools.count(),  # the texts differ from process to process
)
def test_wrong_key_is_refused_and_not_quoted(authorization):
    refusal = refusal_of(gate_of(old=None), authorization)
    assert refusal.status == 401
    assert "error=" in refusal.headers["WWW-Authenticate"]
    assert SECRET not in refusal.detail + refusal.headers["WWW-Authenticate"]
    assert (refusal.detail + refusal.headers["WWW-Authenticate"]).isascii()


def test_chosen_secret_is_refused_even_if_its_hash_is_configured():
    chosen = "correct-horse-battery-staple"
    key = IngestKey(sha256=hashlib.sha256(chosen.encode()).hexdigest())
    gate = Gate({"app": key}, "ingest")
    refusal = refusal_of(gate, f"Bearer {chosen}")
    assert refusal.detail.startswith("Authorization: must be Bearer hub_ingest_...")


def test_ingest_key_is_no_admin_token_even_if_its_hash_is_configured_as_one():
    gate = Gate({"ops": AdminToken(sha256=HASH)}, "admin")
    with pytest.raises(AuthError):
        gate.admit(f"Bearer {SECRET}", TODAY)


def test_where_no_key_is_needed_a_request_without_one_is_let_in_and_a_wrong_one_is_not():
    gate = gate_of(anonymous=True, old=None)
    assert gate.admit(None, TODAY) is None
    assert gate.admit(f"Bearer {SECRET}", TODAY) == "old"
    assert refusal_of(gate, f"Bearer {OTHER_SECRET}").status == 401


def test_where_there_are_no_keys_the_header_is_ignored():
    gate = gate_of(anonymous=True)
    assert gate.admit(None, TODAY) is None
    assert gate.admit(f"Bearer {SECRET}", TODAY) is None
    assert gate.admit("nonsense", TODAY) is None


def test_without_tokens_every_request_is_refused():
    with pytest.raises(AuthError):
        Gate({}, "admin").admit(f"Bearer {SECRET}", TODAY)
