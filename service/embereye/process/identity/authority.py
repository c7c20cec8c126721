"""A small certificate authority for EmberEye's own processes. Keys are ECDSA P-256; time is an argument.

An `Authority` is a sequence of signers (certificate and key), oldest first. All of them are trusted; the newest that
every process has had time to learn of signs. `renewed` adds a successor when the newest signer has lived for two thirds
of its time, and removes expired signers. `adopted` replaces our own signers by one that another authority issued.
`succeed` makes a new authority after the loss of another one, whose certificates stay trusted meanwhile.
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

LIFE = timedelta(days=7)  # of an issued certificate, which is renewed after two thirds of it
AUTHORITY_LIFE = timedelta(days=365)
PROPAGATION = timedelta(days=1)  # time in which all processes learn to trust a new signer before it signs
BACKDATE = timedelta(days=1)  # allowance for clocks that are behind
CURVE = ec.SECP256R1
USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Issued:
    """One identity's certificate and key, and the authorities that it trusts; PEM."""

    certificate: bytes
    key: bytes
    trusted: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """The contents as files, named as in Secrets of type kubernetes.io/tls."""
        return {"ca.crt": self.trusted, "tls.crt": self.certificate, "tls.key": self.key}


@dataclass(frozen=True)
class _Signer:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(compare=False)

    @property
    def is_self_made(self) -> bool:
        """True if it was made here, not by another authority."""
        return self.certificate.issuer == self.certificate.subject

    def is_valid(self, now: datetime) -> bool:
        return self.certificate.not_valid_before_utc <= now < self.certificate.not_valid_after_utc

    def is_propagated(self, now: datetime) -> bool:
        backdated = BACKDATE if self.is_self_made else timedelta(0)
        return self.certificate.not_valid_before_utc + backdated + PROPAGATION <= now


class Authority:
    """An immutable authority; `renewed` and `adopted` return another one."""

    def __init__(self, signers: Sequence[_Signer], inherited: Sequence[x509.Certificate] = ()) -> None:
        self._signers = tuple(signers)  # oldest first
        self._inherited = tuple(inherited)  # of a lost authority: trusted, but their keys are gone

    @classmethod
    def create(cls, now: datetime) -> "Authority":
        """Make a new authority, which no process trusts yet."""
        return cls([_new_signer(now)])

    @classmethod
    def succeed(cls, now: datetime, trusted: bytes) -> "Authority":
        """Make a new authority after the loss of another one, of which only the certificates `trusted` (PEM) remain.

        These stay trusted for twice PROPAGATION, so that processes with certificates of both can verify each other.
        ValueError if `trusted` is unreadable.
        """
        inherited = dict.fromkeys(x509.load_pem_x509_certificates(trusted)) if trusted.strip() else ()
        return cls([_new_signer(now)], [known for known in inherited if now < known.not_valid_after_utc])

    @classmethod
    def from_issuer(cls, chain: bytes, key: bytes) -> "Authority":
        """An authority that another one issued: its certificate is first in `chain`, PEM. ValueError if unusable."""
        certificate = x509.load_pem_x509_certificate(chain)
        try:
            loaded = serialization.load_pem_private_key(key, None)
        except (TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(f"the key cannot be read: {error}") from error
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except x509.ExtensionNotFound:
            constraints = None
        if constraints is None or not constraints.ca:
            raise ValueError("the certificate is not for an authority: isCA is not set")
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != certificate.public_key():
            raise ValueError("the key does not belong to the certificate, or is not ECDSA")
        return cls([_Signer(certificate, loaded)])

    @classmethod
    def load(cls, certificates: bytes, keys: bytes, inherited: bytes = b"") -> "Authority":
        """Load the result of `to_pem`; ValueError if certificates and keys do not belong together.

        `inherited` are the certificates of a lost authority, PEM.
        """
        loaded = x509.load_pem_x509_certificates(certificates)
        blocks = [block + _KEY_END for block in keys.split(_KEY_END) if block.strip()]
        signers = []
        for certificate, block in itertools.zip_longest(loaded, blocks):
            if certificate is None or block is None:
                raise ValueError(f"{len(loaded)} certificates and {len(blocks)} keys do not belong together")
            key = serialization.load_pem_private_key(block.lstrip(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
                raise ValueError(f"{certificate.subject.rfc4514_string()}: the key does not belong to this certificate")
            signers.append(_Signer(certificate, key))
        return cls(signers, x509.load_pem_x509_certificates(inherited) if inherited.strip() else ())

    def to_pem(self) -> tuple[bytes, bytes]:
        """Certificates and keys of the signers, oldest first."""
        certificates = b"".join(_pem(signer.certificate) for signer in self._signers)
        return certificates, b"".join(_key_pem(signer.key) for signer in self._signers)

    @property
    def trusted(self) -> bytes:
        """The certificates that verify all certificates of this authority, past, present and next; PEM."""
        return self.inherited + b"".join(_pem(signer.certificate) for signer in self._signers)

    @property
    def inherited(self) -> bytes:
        """The certificates of a lost authority that are still trusted; PEM."""
        return b"".join(map(_pem, self._inherited))

    def is_succeeding(self, now: datetime) -> bool:
        """True while a lost authority's certificates must stay in use: not every process trusts this one yet."""
        return bool(self._inherited) and not any(signer.is_propagated(now) for signer in self._signers)

    def renewed(self, now: datetime) -> "Authority":
        """The authority to use at `now`: with a successor if it is time, and without expired signers.

        The successor signs after PROPAGATION. Expired signers are retained until a valid one signs, and future ones
        always: if the clock was wrong, processes that trust one of them must still be able to authenticate.
        """
        valid = [signer for signer in self._signers if signer.is_valid(now)]
        if any(signer.is_propagated(now) for signer in valid):
            signers = [signer for signer in self._signers if now < signer.certificate.not_valid_after_utc]
        else:
            signers = list(self._signers)
        if not valid or valid[-1].certificate.not_valid_after_utc - now < AUTHORITY_LIFE / 3:
            signers.append(_new_signer(now))
            signers.sort(key=lambda signer: signer.certificate.not_valid_before_utc)
        inherited = [known for known in self._inherited if now < known.not_valid_after_utc]
        if any(signer.is_propagated(now - PROPAGATION) for signer in valid):
            inherited = []
        unchanged = (tuple(signers), tuple(inherited)) == (self._signers, self._inherited)
        return self if unchanged else Authority(signers, inherited)

    def adopted(self, successor: "Authority", now: datetime) -> "Authority":
        """The authority to use at `now` with `successor`, which another authority issued.

        The successor signs after PROPAGATION, or at once if no other signer is valid. Our own earlier signers are
        trusted until all certificates that they signed have expired.
        """
        latest = successor._signers[-1]
        valid = [signer for signer in self._signers if signer.is_valid(now)]
        if latest.is_propagated(now - LIFE):
            valid = [signer for signer in valid if not signer.is_self_made]
        if latest.is_valid(now) and latest not in valid:
            valid.append(latest)
        return self if tuple(valid) == self._signers else Authority(valid)

    def __bool__(self) -> bool:
        return bool(self._signers)

    def issue(self, identity: Identity, now: datetime, life: timedelta = LIFE, names: Sequence[str] = ()) -> Issued:
        """Issue a client and server certificate for `identity`, valid for `life` from `now`.

        `names` are the host names or addresses by which other programs dial it. ValueError if one of them is reserved
        for EmberEye's own processes.
        """
        if reserved := [name for name in names if name.lower().rstrip(".").endswith(SERVER_DOMAIN)]:
            raise ValueError(f"{reserved[0]}: the domain {SERVER_DOMAIN} is reserved for EmberEye's own processes")
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
        # Programs that trust only the issuer of our authority need our authority's certificate, too.
        chain = _pem(certificate) + (b"" if signer.is_self_made else _pem(signer.certificate))
        return Issued(chain, _key_pem(key), self.trusted)

    def _signer(self, now: datetime) -> _Signer:
        """The newest valid signer that all processes have had time to learn of, else the oldest."""
        valid = [signer for signer in self._signers if signer.is_valid(now)] or self._signers
        propagated = [signer for signer in valid if signer.is_propagated(now)]
        return propagated[-1] if propagated else valid[0]


def build_request(identity: Identity, key: ec.EllipticCurvePrivateKey) -> x509.CertificateSigningRequest:
    """The request to another authority for a certificate of `identity` with `key`."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.role.value)]))
        .add_extension(_alternative_names(identity), critical=False)
        .sign(key, hashes.SHA256())
    )


def expiry(certificate: bytes) -> datetime:
    """The expiry of the first certificate in PEM text; ValueError if there is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_due(certificate: bytes, trusted: bytes, now: datetime, *, wanted: bytes, life: timedelta = LIFE) -> bool:
    """True if a certificate has to be renewed: after two thirds of its life, or after a step of the clock.

    Also if its `trusted` authorities differ from the `wanted` ones.
    """
    try:
        expires = expiry(certificate)
    except ValueError:
        return True
    return trusted != wanted or is_due_by(expires, now, life)


def is_due_by(expires: datetime, now: datetime, life: timedelta = LIFE) -> bool:
    """True if a certificate that expires at `expires` has to be renewed; see `is_due`."""
    return not life / 3 <= expires - now <= life + BACKDATE


def utc_now() -> datetime:
    """The time of the wall clock, which certificates refer to."""
    return datetime.now(UTC)


def _new_signer(now: datetime) -> _Signer:
    key = ec.generate_private_key(CURVE())
    serial = x509.random_serial_number()
    # A unique name, so that a verifier does not try the wrong certificate.
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
    """The host names and addresses in the first certificate of PEM text; ValueError if there is none."""
    names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    addresses = {str(address) for address in names.value.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.value.get_values_for_type(x509.DNSName))


def _alternative_names(identity: Identity, names: Sequence[str] = ()) -> x509.SubjectAlternativeName:
    internal = [x509.UniformResourceIdentifier(identity.uri), x509.DNSName(identity.server_name)]
    return x509.SubjectAlternativeName([*internal, *(_host(name) for name in names)])


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
