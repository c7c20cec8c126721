"""Write SOAP 1.2 envelopes with a WS-UsernameToken, and read faults (ONVIF Core Specification, 5.9 and 5.12)."""

import base64
import contextlib
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from xml.sax.saxutils import escape

from embereye.wire.onvif.xml import Element
from embereye.wire.rtsp.messages import printable

_CALLED = re.compile(r'<(\w+) xmlns="([^"]+)"')
_SECURITY = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-"
_DIGEST = f"{_SECURITY}username-token-profile-1.0#PasswordDigest"
_BASE64 = f"{_SECURITY}soap-message-security-1.0#Base64Binary"
_REFUSED = ("NotAuthorized", "FailedAuthentication", "InvalidSecurity")


@dataclass(frozen=True)
class Fault:
    """A camera's refusal of a request."""

    reason: str
    unauthorized: bool = False  # the credentials are missing, wrong or insufficient


def content_type(body: str) -> str:
    """The Content-Type of a request. It names the optional action, because some cameras need it."""
    called = _CALLED.match(body)
    action = f'; action="{called[2]}/{called[1]}"' if called else ""
    return f"application/soap+xml; charset=utf-8{action}"


def envelope(body: str, header: str = "") -> bytes:
    """A whole request: `body` and `header` in an envelope."""
    header = f"<s:Header>{header}</s:Header>" if header else ""
    start = '<?xml version="1.0" encoding="utf-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope">'
    return f"{start}{header}<s:Body>{body}</s:Body></s:Envelope>".encode()


def username_token(user: str, password: str, nonce: bytes, created: str) -> str:
    """A header that proves knowledge of `password` without sending it; `created` is by the camera's clock."""
    digest = hashlib.sha1(nonce + created.encode() + password.encode(), usedforsecurity=False).digest()
    return (
        f'<Security s:mustUnderstand="1" xmlns="{_SECURITY}wssecurity-secext-1.0.xsd"><UsernameToken>'
        f"<Username>{escape(user)}</Username>"
        f'<Password Type="{_DIGEST}">{base64.b64encode(digest).decode()}</Password>'
        f'<Nonce EncodingType="{_BASE64}">{base64.b64encode(nonce).decode()}</Nonce>'
        f'<Created xmlns="{_SECURITY}wssecurity-utility-1.0.xsd">{created}</Created>'
        "</UsernameToken></Security>"
    )


def created(now: datetime, ahead: timedelta) -> str:
    """Format `now` for a token, by a clock that is `ahead` of ours (ISO 8601, UTC)."""
    with contextlib.suppress(OverflowError):
        now += ahead
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def read_fault(answer: Element) -> Fault | None:
    """The SOAP 1.2 or 1.1 fault in `answer`; None if it has none."""
    fault = answer if answer.name == "Fault" else answer.first("Fault")
    if fault is None:
        return None
    codes = [code.text for code in fault.all("Value", "faultcode")]
    reason = (
        fault.value("Reason", "Text") or fault.value("faultstring") or " ".join(codes) or "a fault without a reason"
    )
    refused = any(word in code for code in codes for word in _REFUSED)
    return Fault(printable(reason, 200), refused)
