"""Whom a client of ours trusts over TLS, with every Python alike."""

import ssl
from pathlib import Path


def trusting(ca: Path | None = None) -> ssl.SSLContext:
    """A client's context that trusts who is proven by an authority in the PEM file `ca`, or by one of this machine's.

    OSError or ssl.SSLError where that cannot be used. From Python 3.13 on `ssl` would also refuse certificates that
    lack what RFC 5280 asks for, such as an Authority Key Identifier, as many do that people make; gRPC takes them.
    Before, it would ask whoever is trusted for who proves him, up to one that nobody does; gRPC does not.
    """
    context = ssl.create_default_context(cafile=str(ca) if ca else None)  # noqa: TID251 -- the one place
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
