"""What a browser keeps while its user is with the identity provider: a signed cookie, so that the hub keeps nothing."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass

from embereye.hub.oidc.errors import NotProvedError

ATTEMPT_SECONDS = 600  # that somebody may take to sign in there
BYTES = 32
KEY = secrets.token_bytes(BYTES)  # of this process: an attempt does not outlive it


@dataclass(frozen=True)
class Attempt:
    """One way to the provider and back."""

    state: str
    nonce: str
    verifier: str  # of PKCE (RFC 7636)
    redirect: str  # where the provider sends the browser back to
    after: str  # path that the user wanted
    until: float  # monotonic seconds

    @property
    def challenge(self) -> str:
        """What the provider is shown of the verifier, S256."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())


def begin(redirect: str, after: str, now: float) -> Attempt:
    """A new attempt, at `now` in monotonic seconds."""
    state, nonce, verifier = (secrets.token_urlsafe(BYTES) for _ in range(3))
    return Attempt(state, nonce, verifier, redirect, after, now + ATTEMPT_SECONDS)


def seal(attempt: Attempt) -> str:
    """The cookie's value."""
    content = json.dumps(asdict(attempt)).encode()
    return f"{_text(content)}.{_text(_mac(content))}"


def unseal(cookie: str, state: str, now: float) -> Attempt:
    """The attempt that `state` belongs to. NotProvedError where this browser began none, or too long ago."""
    content, _, mac = cookie.partition(".")
    try:
        raw = base64.urlsafe_b64decode(content + "==")
        if not hmac.compare_digest(base64.urlsafe_b64decode(mac + "=="), _mac(raw)):
            raise ValueError
        attempt = Attempt(**json.loads(raw))
    except (ValueError, binascii.Error) as error:
        raise NotProvedError("this browser has not begun to sign in here, or the hub was restarted since") from error
    if not hmac.compare_digest(attempt.state.encode(), state.encode()):
        raise NotProvedError("this is the answer to another attempt to sign in")
    if now > attempt.until:
        raise NotProvedError(f"signing in took more than {ATTEMPT_SECONDS // 60} minutes")
    return attempt


def _mac(content: bytes) -> bytes:
    return hmac.digest(KEY, content, "sha256")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
