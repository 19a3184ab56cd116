"""Certificates, keys and tokens: when they end is known before."""

import datetime as dt
from pathlib import Path

import pytest
import trustme

from hubbub.collector import Settings, certificate_ends, expiries


@pytest.mark.parametrize("year", [2031, 2049, 2050, 2150])
def test_end_of_a_certificate_is_read_from_its_file(tmp_path, year):
    """Until 2049 a certificate has its year in two digits, then in four."""
    end = dt.datetime(year, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    issued = trustme.CA().issue_cert("localhost", not_after=end)
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    assert certificate_ends(tmp_path / "cert.pem") == [end]


def test_first_of_a_chain_that_ends_counts(tmp_path):
    authority = trustme.CA()
    later = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    sooner = dt.datetime(2040, 1, 1, tzinfo=dt.UTC)
    for end in (later, sooner):
        pem = authority.issue_cert("localhost", not_after=end).cert_chain_pems[0]
        pem.write_to_path(tmp_path / "chain.pem", append=True)
    settings = Settings(
        metrics=Path("metrics.toml"),
        tls_certificate=tmp_path / "chain.pem",
        tls_key=tmp_path / "key.pem",
    )
    (found,) = expiries(settings)
    assert (found.type, found.name, found.at) == ("certificate", "chain.pem", sooner)


@pytest.mark.parametrize("text", [None, "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END", "ä"])
def test_file_without_certificates_has_no_end(tmp_path, text):
    if text is not None:
        (tmp_path / "cert.pem").write_text(text, encoding="utf-8")
    assert certificate_ends(tmp_path / "cert.pem") == []
