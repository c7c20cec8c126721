"""An authority over time, and over clocks that are wrong."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from embereye.process.identity.authority import AUTHORITY_LIFE, SETTLE, Authority
from embereye.process.identity.names import Identity, Role

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SETTLED = NOW + SETTLE
HUB = Identity(Role.HUB, "default", "hub")


def signers(authority: Authority) -> list[bytes]:
    return [block for block in authority.trusted.split(b"-----END CERTIFICATE-----\n") if block]


def issuer(authority: Authority, now: datetime) -> x509.Name:
    """Who signs at `now`, what holds then."""
    issued = x509.load_pem_x509_certificate(authority.issue(HUB, now).certificate)
    assert issued.not_valid_before_utc <= now < issued.not_valid_after_utc
    return issued.issuer


def test_a_successor_is_trusted_before_it_signs_and_what_is_over_goes_once_it_does() -> None:
    first = Authority.create(NOW)
    later = NOW + AUTHORITY_LIFE * 3 / 4
    both = first.renewed(later)
    assert signers(both)[:1] == signers(first)
    assert issuer(both, later) == issuer(first, later)
    assert issuer(both, later + SETTLE) != issuer(first, later)
    (last,) = signers(both.renewed(NOW + AUTHORITY_LIFE + timedelta(seconds=1)))
    assert last == signers(both)[1]


@pytest.mark.parametrize("wrong", [datetime(1970, 1, 2, tzinfo=UTC), datetime(2035, 1, 1, tzinfo=UTC)])
def test_a_clock_that_was_wrong_for_a_while_has_cost_nobody_whom_he_trusts(wrong: datetime) -> None:
    before = Authority.create(NOW)
    meanwhile = before.renewed(wrong)
    issuer(meanwhile, wrong)
    after = meanwhile.renewed(SETTLED)
    assert set(signers(before)) <= set(signers(meanwhile)) & set(signers(after))
    assert issuer(after, SETTLED) == issuer(before, SETTLED)
    assert after.renewed(SETTLED) is after


def test_a_clock_that_stays_where_it_is_leaves_nothing_that_is_over() -> None:
    meanwhile = Authority.create(NOW).renewed(datetime(2035, 1, 1, tzinfo=UTC))
    assert len(signers(meanwhile)) == 2
    assert len(signers(meanwhile.renewed(datetime(2035, 1, 1, tzinfo=UTC) + SETTLE))) == 1


@pytest.mark.parametrize("name", ["hub.embereye.internal", "HUB.EmberEye.Internal", "hub.embereye.internal."])
def test_nobody_gets_the_name_of_another_process_however_it_is_written(name: str) -> None:
    with pytest.raises(ValueError, match="is how our own processes name each other"):
        Authority.create(NOW).issue(HUB, SETTLED, names=["hall.example.org", name])


def test_an_issuer_whose_key_cannot_be_read_is_told_as_one_that_cannot_sign() -> None:
    certificate, plain = Authority.create(NOW).to_pem()
    locked = serialization.load_pem_private_key(plain, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(ValueError, match=r"its key cannot be read: .* encrypted"):
        Authority.of_issuer(certificate, locked)
