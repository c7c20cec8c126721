"""A small certificate authority: it makes itself, issues certificates for processes, and is renewed in time.

Its certificates are for our own processes alone; keys are ECDSA P-256. Time is an argument.
"""

import ipaddress
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from embereye.process.identity.names import SERVER_DOMAIN, Identity

LIFE = timedelta(days=7)  # of an issued certificate: what nobody renews for a third of that stops to work
AUTHORITY_LIFE = timedelta(days=365)
SETTLE = timedelta(days=1)  # that a new authority is trusted everywhere before it signs
BACKDATE = timedelta(days=1)  # clocks differ
CURVE = ec.SECP256R1
USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Issued:
    """One identity's certificate, its key, and whom it trusts; PEM."""

    certificate: bytes
    key: bytes
    trusted: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """The same as files; their names are those of Secrets of the type kubernetes.io/tls."""
        return {"ca.crt": self.trusted, "tls.crt": self.certificate, "tls.key": self.key}


@dataclass(frozen=True)
class _Signer:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(compare=False)

    @property
    def own(self) -> bool:
        """Whether we made it ourselves."""
        return self.certificate.issuer == self.certificate.subject

    def alive(self, now: datetime) -> bool:
        return self.certificate.not_valid_before_utc <= now < self.certificate.not_valid_after_utc

    def settled(self, now: datetime) -> bool:
        backdated = BACKDATE if self.own else timedelta(0)
        return self.certificate.not_valid_before_utc + backdated + SETTLE <= now


class Authority:
    """Immutable: `renewed` returns another one. It holds its past as long as certificates of it may be in use."""

    def __init__(self, signers: Sequence[_Signer]) -> None:
        self._signers = tuple(signers)  # oldest first

    @classmethod
    def create(cls, now: datetime) -> "Authority":
        """A new one, which nobody trusts yet."""
        return cls([_new_signer(now)])

    @classmethod
    def of_issuer(cls, chain: bytes, key: bytes) -> "Authority":
        """One that somebody else made: its certificate first in `chain`, PEM. ValueError where it cannot sign."""
        certificate = x509.load_pem_x509_certificate(chain)
        try:
            loaded = serialization.load_pem_private_key(key, None)
        except (TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(f"its key cannot be read: {error}") from error
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except x509.ExtensionNotFound:
            constraints = None
        if constraints is None or not constraints.ca:
            raise ValueError("its certificate is not an authority's: isCA is not set")
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != certificate.public_key():
            raise ValueError("its key is not this certificate's, or not of ECDSA")
        return cls([_Signer(certificate, loaded)])

    @classmethod
    def load(cls, certificates: bytes, keys: bytes) -> "Authority":
        """The one of which `to_pem` made these; ValueError where they do not belong together."""
        loaded = x509.load_pem_x509_certificates(certificates)
        blocks = [block + _KEY_END for block in keys.split(_KEY_END) if block.strip()]
        signers = []
        for certificate, block in itertools.zip_longest(loaded, blocks):
            if certificate is None or block is None:
                raise ValueError(f"{len(loaded)} certificates and {len(blocks)} keys do not belong together")
            key = serialization.load_pem_private_key(block.lstrip(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
                raise ValueError(f"{certificate.subject.rfc4514_string()}: the key is not this certificate's")
            signers.append(_Signer(certificate, key))
        return cls(signers)

    def to_pem(self) -> tuple[bytes, bytes]:
        """Certificates and keys, oldest first."""
        return self.trusted, b"".join(_key_pem(signer.key) for signer in self._signers)

    @property
    def trusted(self) -> bytes:
        """The certificates that prove what this authority issued, and will issue next; PEM."""
        return b"".join(_pem(signer.certificate) for signer in self._signers)

    def renewed(self, now: datetime) -> "Authority":
        """The same, or where the time has come one that trusts a successor, and nothing that has been over for a while.

        The successor signs SETTLE later: until then everybody learns to trust it. As long as none that is alive has
        signed, what is over stays, and what begins later always does: it may be the clock that is wrong, and once it
        is right again whoever trusts one of them must not have to learn of another.
        """
        alive = [signer for signer in self._signers if signer.alive(now)]
        if any(signer.settled(now) for signer in alive):
            kept = [signer for signer in self._signers if now < signer.certificate.not_valid_after_utc]
        else:
            kept = list(self._signers)
        if not alive or alive[-1].certificate.not_valid_after_utc - now < AUTHORITY_LIFE / 3:
            kept.append(_new_signer(now))
            kept.sort(key=lambda signer: signer.certificate.not_valid_before_utc)
        return self if tuple(kept) == self._signers else Authority(kept)

    def adopted(self, successor: "Authority", now: datetime) -> "Authority":
        """The same, or one that trusts `successor`, which somebody else made, and makes none itself.

        It signs SETTLE after it was made, at once where nothing else is alive. What we made ourselves before is trusted
        until its certificates are over.
        """
        latest = successor._signers[-1]
        alive = [signer for signer in self._signers if signer.alive(now)]
        if latest.settled(now - LIFE):
            alive = [signer for signer in alive if not signer.own]
        if latest.alive(now) and latest not in alive:
            alive.append(latest)
        return self if tuple(alive) == self._signers else Authority(alive)

    def __bool__(self) -> bool:
        return bool(self._signers)

    def issue(self, identity: Identity, now: datetime, life: timedelta = LIFE, names: Sequence[str] = ()) -> Issued:
        """A certificate by which `identity` proves itself, whether it calls or is called, for `life` from `now`.

        `names`, of hosts or addresses, are those by which others than our own processes dial it. ValueError where
        one of them is the name of another process of ours.
        """
        if reserved := [name for name in names if name.lower().rstrip(".").endswith(SERVER_DOMAIN)]:
            raise ValueError(f"{reserved[0]} is how our own processes name each other")
        key = ec.generate_private_key(CURVE())
        signer = self._signer(now)
        request = build_request(identity, key)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(signer.certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - BACKDATE, signer.certificate.not_valid_before_utc))
            .not_valid_after(min(now + life, signer.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(USAGES), critical=False)
            .add_extension(_alternative_names(identity, names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
            .sign(signer.key, hashes.SHA256())
        )
        # Those of others that trust who made ours need ours, too.
        chain = _pem(certificate) + (b"" if signer.own else _pem(signer.certificate))
        return Issued(chain, _key_pem(key), self.trusted)

    def _signer(self, now: datetime) -> _Signer:
        """The newest that everybody has had the time to learn of."""
        alive = [one for one in self._signers if one.alive(now)] or self._signers
        settled = [one for one in alive if one.settled(now)]
        return settled[-1] if settled else alive[0]


def build_request(identity: Identity, key: ec.EllipticCurvePrivateKey) -> x509.CertificateSigningRequest:
    """What another authority is asked to sign, so that `identity` can prove itself with `key`."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.role.value)]))
        .add_extension(_alternative_names(identity), critical=False)
        .sign(key, hashes.SHA256())
    )


def expiry(certificate: bytes) -> datetime:
    """Until when the first certificate in PEM text holds; ValueError where there is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def due(certificate: bytes, trusted: bytes, now: datetime, *, wanted: bytes, life: timedelta = LIFE) -> bool:
    """Whether a certificate is to be issued anew: two thirds of its life are over, or the clock has moved.

    So it is where it comes with other `trusted` authorities than are `wanted` now.
    """
    try:
        expires = expiry(certificate)
    except ValueError:
        return True
    return trusted != wanted or due_by(expires, now, life)


def due_by(expires: datetime, now: datetime, life: timedelta = LIFE) -> bool:
    """Whether a certificate that holds until `expires` is to be issued anew; see `due`."""
    return not life / 3 <= expires - now <= life + BACKDATE


def utc_now() -> datetime:
    """The wall clock: certificates know no other."""
    return datetime.now(UTC)


def _new_signer(now: datetime) -> _Signer:
    key = ec.generate_private_key(CURVE())
    serial = x509.random_serial_number()
    # Each has a name of its own, or a verifier may try the wrong one.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"EmberEye CA {serial % 16**8:08x}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Signer(certificate, key)


def _key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def served_names(certificate: bytes) -> set[str]:
    """The names of hosts and the addresses in the first certificate of PEM text; ValueError where there is none."""
    names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    addresses = {str(address) for address in names.value.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.value.get_values_for_type(x509.DNSName))


def _alternative_names(identity: Identity, names: Sequence[str] = ()) -> x509.SubjectAlternativeName:
    own = [x509.UniformResourceIdentifier(identity.uri), x509.DNSName(identity.server_name)]
    return x509.SubjectAlternativeName([*own, *(_host(name) for name in names)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


_KEY_END = b"-----END PRIVATE KEY-----\n"


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
