"""Whether a camera that speaks TLS is who its certificate says."""

import ssl
from functools import cache

from embereye.camera.sources.declared import UNPROVEN, SourceError
from embereye.process.tls.trust import trusting

LEGACY_SERVER_CONNECT = ssl.Options(0x4)  # OpenSSL's; Python names it from 3.12 on


def context(*, proven: bool) -> ssl.SSLContext:
    """The TLS context of a connection. Not `proven`: eavesdroppers are kept out, but anybody may pose as the camera."""
    return trusting() if proven else unproven()


@cache
def proven() -> ssl.SSLContext:
    """The context of all connections by aiohttp that are proven: reading whom this machine trusts takes a while."""
    return trusting()


@cache
def unproven() -> ssl.SSLContext:
    """The context of all connections that are not proven, one for all: aiohttp keeps connections by it.

    It takes the newest that the camera has, however old that is. Python would refuse ciphers without forward secrecy
    and TLS 1.1, and OpenSSL servers without RFC 5746: many cameras have nothing else.
    """
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
    secure.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    secure.options |= LEGACY_SERVER_CONNECT
    secure.set_ciphers("DEFAULT:@SECLEVEL=0")
    return secure


def refusal(error: Exception) -> SourceError:
    """The sentence for a connection that TLS has refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return SourceError(f"its certificate is not trusted: {why}; to go without proof, add {UNPROVEN} to the query")
    return SourceError(f"cannot connect: TLS: {getattr(error, 'reason', '') or error}")
