"""An attempt to sign in: stored in a signed cookie of the browser, so the hub stores nothing.

`http/access/oidc.py` begins an attempt, seals it into a cookie and sends the browser to the provider. When the browser
returns, `unseal` proves that this browser began this attempt at most ten minutes ago. The key belongs to the process,
so a restart of the hub ends all attempts.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass

from embereye.hub.oidc.errors import NotProvedError

ATTEMPT_SECONDS = 600  # longest stay at the provider's sign-in page
BYTES = 32


@dataclass(frozen=True)
class Attempt:
    """One trip of a browser to the provider and back."""

    state: str
    nonce: str
    verifier: str  # of PKCE (RFC 7636)
    redirect: str  # the provider sends the browser back to this address
    after: str  # path that the user wanted
    until: float  # monotonic seconds

    @property
    def challenge(self) -> str:
        """The proof of the verifier for the provider, by S256."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())


def begin(redirect: str, after: str, now: float) -> Attempt:
    """Start an attempt at `now`, in monotonic seconds."""
    state, nonce, verifier = (secrets.token_urlsafe(BYTES) for _ in range(3))
    return Attempt(state, nonce, verifier, redirect, after, now + ATTEMPT_SECONDS)


def seal(attempt: Attempt, key: bytes) -> str:
    """Sign `attempt` for a cookie with the hub's `key`."""
    content = json.dumps(asdict(attempt)).encode()
    return f"{_text(content)}.{_text(_mac(content, key))}"


def unseal(cookie: str, key: bytes, state: str, now: float) -> Attempt:
    """Return the attempt of `state`. NotProvedError if this browser started none, or if it is too old."""
    content, _, mac = cookie.partition(".")
    try:
        raw = base64.urlsafe_b64decode(content + "==")
        if not hmac.compare_digest(base64.urlsafe_b64decode(mac + "=="), _mac(raw, key)):
            raise ValueError
        attempt = Attempt(**json.loads(raw))
    except (ValueError, binascii.Error) as error:
        raise NotProvedError("this browser has not started to sign in here, or the hub has restarted since") from error
    if not hmac.compare_digest(attempt.state.encode(), state.encode()):
        raise NotProvedError("this answer belongs to another attempt to sign in")
    if now > attempt.until:
        raise NotProvedError(f"signing in took more than {ATTEMPT_SECONDS // 60} minutes")
    return attempt


def _mac(content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
