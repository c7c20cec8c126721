"""The trust of TLS clients, the same in every version of Python."""

import ssl
from pathlib import Path


def trusting(ca: Path | None = None) -> ssl.SSLContext:
    """A client's context that trusts the authorities in the PEM file `ca`, or those of this machine.

    OSError or ssl.SSLError if `ca` cannot be used. Two defaults are changed to match gRPC. From Python 3.13 on, `ssl`
    refuses certificates without fields that RFC 5280 requires, such as an Authority Key Identifier, which self-made
    certificates often lack. Earlier versions require that a trusted certificate is itself verified up to a root.
    """
    context = ssl.create_default_context(cafile=str(ca) if ca else None)  # noqa: TID251 -- the only place
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
