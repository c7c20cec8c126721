"""Certificates of a site's authority for servers and devices in tests."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from embereye.process.identity.authority import utc_now
from embereye.process.tls.client import ClientTls

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A folder with ca.crt, tls.crt and tls.key."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def client(self, ca: Path | None = None, *, shown: bool = True) -> ClientTls:
        """Client TLS that trusts `ca`, or else this pair's issuer, and presents the pair if `shown`."""
        certificate = (self.folder / "tls.crt", self.folder / "tls.key") if shown else (None, None)
        return ClientTls(ca or self.ca, *certificate)


class SiteAuthority:
    """An authority whose certificates last a day. `above` is its issuer, if it is an intermediate."""

    def __init__(self, folder: Path, name: str = "a site's authority", above: "SiteAuthority | None" = None) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now, by = utc_now(), above or self
        self.certificate = (
            by._builder(self._name, self._key.public_key(), now - DAY, now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(by._key, hashes.SHA256())
        ).public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        name: str,
        *,
        folder: str = "",
        alternatives: Sequence[str] = (),
        life: timedelta = DAY / 2,
        begin: timedelta = timedelta(minutes=-5),
    ) -> Pair:
        """Issue a certificate for `name`; `alternatives` are addresses, URIs or host names."""
        key, now = ec.generate_private_key(ec.SECP256R1()), utc_now()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), now + begin, now + life)
        if alternatives:
            names = x509.SubjectAlternativeName([_general(text) for text in alternatives])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        plain = serialization.NoEncryption()
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        place = self._folder / (folder or name)
        place.mkdir(parents=True, exist_ok=True)
        for file, content in (("ca.crt", self.certificate), ("tls.crt", certificate), ("tls.key", secret)):
            (place / file).write_bytes(content)
        return Pair(place)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )


def _general(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
