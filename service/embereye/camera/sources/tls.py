"""TLS for connections to cameras, with or without a check of the certificate."""

import ssl
from functools import cache

from embereye.camera.sources.declared import UNVERIFIED, SourceError
from embereye.process.tls.trust import trusting

LEGACY_SERVER_CONNECT = ssl.Options(0x4)  # OpenSSL's; Python names it from 3.12 on


def context(*, verified: bool) -> ssl.SSLContext:
    """The TLS context of a connection. Without `verified`, data is encrypted but anybody may pose as the camera."""
    return trusting() if verified else unverified()


@cache
def verified() -> ssl.SSLContext:
    """The context of all verified aiohttp connections, cached because reading the certificates is slow."""
    return trusting()


@cache
def unverified() -> ssl.SSLContext:
    """The context of all unverified connections, cached because aiohttp reuses connections per context.

    It accepts the newest protocol that the camera has, however old. Python would refuse TLS 1.1 and ciphers without
    forward secrecy, and OpenSSL servers without RFC 5746, but many cameras have nothing else.
    """
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
    secure.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    secure.options |= LEGACY_SERVER_CONNECT
    secure.set_ciphers("DEFAULT:@SECLEVEL=0")
    return secure


def refusal(error: Exception) -> SourceError:
    """Describe a connection that TLS refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return SourceError(
            f"its certificate is not trusted: {why}. To connect without verification, add {UNVERIFIED} to the query"
        )
    return SourceError(f"cannot connect: TLS: {getattr(error, 'reason', '') or error}")
