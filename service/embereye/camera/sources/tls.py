"""Whether a camera that speaks TLS is who its certificate says."""

import ssl

from embereye.camera.sources.declared import UNPROVEN, SourceError


def context(*, proven: bool) -> ssl.SSLContext:
    """The TLS context of a connection. Not `proven`: eavesdroppers are kept out, but anybody may pose as the camera."""
    secure = ssl.create_default_context()
    if not proven:
        secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
    return secure


def refusal(error: Exception) -> SourceError:
    """The sentence for a connection that TLS has refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return SourceError(f"its certificate is not trusted: {why}; to go without proof, add {UNPROVEN} to the query")
    return SourceError(f"cannot connect: TLS: {getattr(error, 'reason', '') or error}")
