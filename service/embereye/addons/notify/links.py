"""Signed links in messages: they acknowledge alarms, or confirm that a route works (pure).

A link carries what it permits: the route it was sent to, the alarms, the role and the time until which it works. The
hub's key signs it, so that nobody can make or change one. It works once; the hub stores which were used.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from embereye.hub.roles import Role

MAX_TOKEN = 2_000  # characters
MAX_ALARMS = 5  # named in a link; a link for more covers all that its route had got until then
MAC_BYTES = 16
ACKNOWLEDGE, CONFIRM = "acknowledge", "confirm"


class BadLinkError(ValueError):
    """The link is damaged, forged or too old; the message is for its reader."""


@dataclass(frozen=True)
class Link:
    """The permission in a link."""

    purpose: str  # ACKNOWLEDGE or CONFIRM
    route: str
    until: int  # seconds since the Unix epoch
    incidents: Sequence[str] = ()  # keys; empty: all that the route had got until `made`
    made: int = 0  # seconds since the Unix epoch
    role: Role = Role.OPERATOR
    nonce: str = ""


def new_key() -> str:
    """Make a random key, as text."""
    return secrets.token_urlsafe(32)


def sign(link: Link, key: str) -> str:
    """Return the link's token for a URL."""
    nonce = link.nonce or secrets.token_urlsafe(9)
    fields = [link.purpose[0], link.route, link.until, list(link.incidents), link.made, int(link.role), nonce]
    payload = zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 9)
    return f"{_encoded(payload)}.{_encoded(_mac(payload, key))}"


def read(token: str, key: str, now: float) -> Link:
    """Check a token at `now`, a Unix time; BadLinkError."""
    payload_text, _, mac_text = token.partition(".")
    try:
        if len(token) > MAX_TOKEN:
            raise ValueError("too long")
        payload, mac = _decoded(payload_text), _decoded(mac_text)
        if not hmac.compare_digest(mac, _mac(payload, key)):
            raise ValueError("another key signed it")
        purpose, route, until, incidents, made, role, nonce = json.loads(zlib.decompress(payload))
    except (ValueError, binascii.Error, zlib.error) as error:
        raise BadLinkError("This link is not complete, or another hub made it.") from error
    if now > until:
        raise BadLinkError("This link is too old. Use the console, or the link in a newer message.")
    word = CONFIRM if purpose == CONFIRM[0] else ACKNOWLEDGE
    return Link(word, route, until, tuple(incidents), made, Role(role), nonce)


def _mac(payload: bytes, key: str) -> bytes:
    return hmac.new(key.encode(), payload, hashlib.sha256).digest()[:MAC_BYTES]


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
