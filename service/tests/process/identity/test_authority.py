"""An authority over time, and over clocks that are wrong."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from embereye.process.identity.authority import AUTHORITY_LIFE, PROPAGATION, Authority
from embereye.process.identity.names import Identity, Role

NOW = datetime(2026, 11, 1, tzinfo=UTC)
PROPAGATED = NOW + PROPAGATION
HUB = Identity(Role.HUB, "default", "hub")


def signers(authority: Authority) -> list[bytes]:
    return [block for block in authority.trusted.split(b"-----END CERTIFICATE-----\n") if block]


def issuer(authority: Authority, now: datetime) -> x509.Name:
    """The issuer of a certificate that is issued, and valid, at `now`."""
    issued = x509.load_pem_x509_certificate(authority.issue(HUB, now).certificate)
    assert issued.not_valid_before_utc <= now < issued.not_valid_after_utc
    return issued.issuer


def test_a_successor_is_trusted_before_it_signs_and_then_replaces_expired_ones() -> None:
    first = Authority.create(NOW)
    later = NOW + AUTHORITY_LIFE * 3 / 4
    both = first.renewed(later)
    assert signers(both)[:1] == signers(first)
    assert issuer(both, later) == issuer(first, later)
    assert issuer(both, later + PROPAGATION) != issuer(first, later)
    (last,) = signers(both.renewed(NOW + AUTHORITY_LIFE + timedelta(seconds=1)))
    assert last == signers(both)[1]


@pytest.mark.parametrize("wrong", [datetime(1970, 1, 2, tzinfo=UTC), datetime(2035, 1, 1, tzinfo=UTC)])
def test_trusted_authorities_survive_a_clock_that_was_wrong_for_a_while(wrong: datetime) -> None:
    before = Authority.create(NOW)
    meanwhile = before.renewed(wrong)
    issuer(meanwhile, wrong)
    after = meanwhile.renewed(PROPAGATED)
    assert set(signers(before)) <= set(signers(meanwhile)) & set(signers(after))
    assert issuer(after, PROPAGATED) == issuer(before, PROPAGATED)
    assert after.renewed(PROPAGATED) is after


def test_with_a_steady_clock_no_expired_signer_remains() -> None:
    meanwhile = Authority.create(NOW).renewed(datetime(2035, 1, 1, tzinfo=UTC))
    assert len(signers(meanwhile)) == 2
    assert len(signers(meanwhile.renewed(datetime(2035, 1, 1, tzinfo=UTC) + PROPAGATION))) == 1


@pytest.mark.parametrize("name", ["hub.embereye.internal", "HUB.EmberEye.Internal", "hub.embereye.internal."])
def test_no_certificate_is_issued_for_a_reserved_name(name: str) -> None:
    with pytest.raises(ValueError, match="is reserved for EmberEye's own processes"):
        Authority.create(NOW).issue(HUB, PROPAGATED, names=["hall.example.org", name])


def test_an_issuer_with_an_unreadable_key_is_refused() -> None:
    certificate, plain = Authority.create(NOW).to_pem()
    locked = serialization.load_pem_private_key(plain, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(ValueError, match=r"the key cannot be read: .* encrypted"):
        Authority.from_issuer(certificate, locked)
