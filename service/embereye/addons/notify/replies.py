"""Replies by SMS that do what a message's link does, as Twilio hands them to a web address.

A message has a code of six digits instead of the link. The hub stores the signed link of each code, so a code works
once, only for the route that sent it, and no longer than the link. Twilio signs what it hands over with the account's
token: https://www.twilio.com/docs/usage/security#validating-requests
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from html import escape

from embereye.addons.notify.links import BadLinkError
from embereye.addons.notify.rows import Rows

PATH = "/n/sms/"  # followed by the route
DIGITS = 6
CODE = re.compile(rf"(?<!\d)\d{{{DIGITS}}}(?!\d)")
HOW = f"Reply with the {DIGITS} digits of the message."


class Codes:
    """The codes of messages, with their links."""

    def __init__(self, rows: Callable[[], Rows]) -> None:
        self._rows = rows

    def make(self, route: str, token: str, until: int, now: float) -> str:
        """Make a code for the link with `token`, which works until the Unix time `until`."""
        rows = self._rows()
        for code, document in list(rows.all("code")):
            if document["until"] < now:
                rows.put("code", code, None)
        while rows.get("code", code := f"{secrets.randbelow(10**DIGITS):0{DIGITS}}") is not None:
            pass
        rows.put("code", code, {"route": route, "token": token, "until": until})
        return code

    def token(self, route: str, text: str) -> str:
        """The link's token for the code in a reply to `route`; BadLinkError."""
        match = CODE.search(text)
        if match is None:
            raise BadLinkError(HOW)
        document = self._rows().get("code", match[0])
        if document is None or document["route"] != route:
            raise BadLinkError(f"No message has the code {match[0]}. {HOW}")
        return str(document["token"])


def signature(url: str, fields: Mapping[str, str], token: str) -> str:
    """Twilio's signature of a form that it sends to `url`, by the account's token."""
    text = url + "".join(f"{name}{value}" for name, value in sorted(fields.items()))
    return base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()


def is_signed(given: str, url: str, fields: Mapping[str, str], token: str) -> bool:
    """True if Twilio made the signature `given`."""
    return hmac.compare_digest(given.encode(), signature(url, fields, token).encode())


def spoken(text: str) -> str:
    """An answer that Twilio sends back as a message."""
    return f'<?xml version="1.0" encoding="UTF-8"?><Response><Message>{escape(text)}</Message></Response>'
