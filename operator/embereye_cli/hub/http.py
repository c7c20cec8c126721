"""What the hub answers over HTTP, read for a person at the command line."""

import http.client
import json
import os
import urllib.error
import urllib.request
from argparse import ArgumentParser
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from embereye.process.lifecycle import UserError
from embereye.process.tls.trust import trusting
from embereye_cli.hub.token import REMEDY, add_token_option, token_for

SECONDS = 30.0  # for an answer


class _Staying(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: whoever it leads to would be shown our token."""

    def redirect_request(self, *_: object) -> None:
        """As urllib asks; None: what redirects is the answer."""


# As by gRPC: a proxy of the environment is for the outside, and would be shown our token.
DIRECT = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting()), _Staying
)
REACH = "--console names the hub's HTTP port"
# By what TLS says where no hub can be talked to: what to do.
UNREACHABLE = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS there: begin --console with http://",
    "CERTIFICATE_VERIFY_FAILED": "SSL_CERT_FILE names the file with who signed its certificate",
}


def add_console_options(parser: ArgumentParser) -> None:
    """Declare --console and --token."""
    console = os.environ.get("EMBEREYE_CONSOLE", "http://127.0.0.1:8080")
    parser.add_argument("--console", default=console, metavar="URL", help="of the hub (%(default)s) [EMBEREYE_CONSOLE]")
    add_token_option(parser)


class HttpHub:
    """The hub at `console`, a URL. UserError says, of whatever fails, what it is and what to do."""

    def __init__(self, console: str, token: str) -> None:
        try:
            parts = urlsplit(console)
            known = parts.scheme in {"http", "https"} and parts.port != 0 and parts.path.isascii()
            known = known and bool((parts.hostname or "").encode("idna"))
        except ValueError:  # a port or a host that is none
            known = False
        if not known:
            raise UserError(f'--console "{console}" is not a URL such as http://127.0.0.1:8080')
        self._base = console.rstrip("/")
        shown = token_for(token, parts.hostname or "")
        self._headers = {"Authorization": f"Bearer {shown}"} if shown else {}

    def read(self, path: str, *fields: str, shows: str = "") -> dict[str, Any]:
        """What it answers to `path`, an object with `fields`; `shows` is what a person reads where it is not there."""
        content = self.fetch(path, shows=shows)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UserError(self._stranger()) from error
        if not isinstance(found, dict) or not found.keys() >= set(fields):
            raise UserError(self._stranger())
        return found

    def fetch(self, path: str, *, shows: str = "") -> bytes:
        """The same, as bytes."""
        try:
            request = urllib.request.Request(self._base + path, headers=self._headers)
            with DIRECT.open(request, timeout=SECONDS) as answer:
                content: bytes = answer.read()
        except urllib.error.HTTPError as error:
            raise UserError(self._sentence(error, shows)) from error
        except http.client.HTTPException as error:
            raise UserError(self._stranger()) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            remedy = next((remedy for sign, remedy in UNREACHABLE.items() if sign in str(reason)), REACH)
            raise UserError(f"the hub at {self._base} cannot be reached: {reason}; {remedy}") from error
        return content

    def _stranger(self) -> str:
        return f"what answers at {self._base} is no hub, or one of another version; {REACH}, with https:// for TLS"

    def _sentence(self, error: urllib.error.HTTPError, shows: str) -> str:
        try:
            reason = str(json.load(error)["error"])
        except (OSError, ValueError, KeyError, TypeError):
            there = f", and leads to {is_leading}" if (is_leading := error.headers.get("Location")) else ""
            return f"{self._stranger()}; it says {error.code} {error.reason}{there}"
        match error.code:
            case HTTPStatus.UNAUTHORIZED:
                return f"the hub at {self._base} does not let us in: {reason.partition(';')[0]}; {REMEDY}"
            case HTTPStatus.NOT_FOUND if shows:
                return f"{reason}: {shows}"
            case HTTPStatus.NOT_FOUND:
                return reason
        return f"the hub at {self._base} refuses: {reason}"
