"""The hub's HTTP API, as commands read it.

Commands that read pages instead of gRPC use `HttpHub` with a `ConsoleConnection`. Redirections and the environment's
proxy are ignored, because another server would receive the token. Each failure becomes a UserError with a remedy: the
hub's sentence from its JSON answer if there is one, else a plain sentence for the system's reason.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any

from embereye.process.lifecycle import NotFoundError, RefusedError, UnreachableError, UserError
from embereye_cli.hub.connection import ConsoleConnection
from embereye_cli.hub.errors import TOKEN_HINT

SECONDS = 30.0  # to wait for an answer
REMEDY = "--console names the hub's HTTP port"
# What TLS or the system says if no hub can be reached → what is wrong, in plain words, and what to do.
REASONS = {
    "WRONG_VERSION_NUMBER": ("it does not use TLS on this port", "Begin --console with http://."),
    "CERTIFICATE_VERIFY_FAILED": (
        "its certificate is not trusted",
        "Name a file with the authority that signed it in SSL_CERT_FILE.",
    ),
    "Connection refused": ("connection refused", "Is it running?"),
    "Name or service not known|No address": ("there is no such host", "Check the name."),
    "timed out": ("it does not answer in time", "Is it running?"),
}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the server that it leads to would receive our token."""

    def redirect_request(self, *_: object) -> None:
        """Return None, as urllib wants it: the redirection is the answer."""


class _Https(urllib.request.HTTPSHandler):
    """HTTPS to a server whose certificate has another name than the URL."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(context=context)
        self._trust = context
        self._server_name = server_name

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open the URL of `request`."""
        name, trust = self._server_name, self._trust

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                """Connect, and check the certificate for the server's name."""
                http.client.HTTPConnection.connect(self)
                self.sock = trust.wrap_socket(self.sock, server_hostname=name or self.host)

        return self.do_open(Connection, request, context=trust)


class HttpHub:
    """A hub's console. Each failure raises a UserError that says what is wrong and what to do."""

    def __init__(self, connection: ConsoleConnection) -> None:
        self._base = connection.url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        # Like gRPC, without the environment's proxy: it is for the outside, and would receive our token.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), _Https(connection.trust, connection.server_name), _NoRedirects
        )

    def read(self, path: str, *fields: str, body: dict[str, Any] | None = None, lister: str = "") -> dict[str, Any]:
        """The JSON object at `path`, which has `fields`, or the answer to a POST of `body`.

        `lister` is what to read if there is no such thing.
        """
        content = self.fetch(path, body=body, lister=lister)
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UnreachableError(self._no_hub()) from error
        if not isinstance(document, dict) or not document.keys() >= set(fields):
            raise UnreachableError(self._no_hub())
        return document

    def fetch(self, path: str, *, body: dict[str, Any] | None = None, lister: str = "") -> bytes:
        """The content at `path`, or the answer to a POST of `body`; `lister` as in `read`."""
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = self._headers if data is None else {**self._headers, "Content-Type": "application/json"}
            request = urllib.request.Request(self._base + path, data, headers)
            with self._opener.open(request, timeout=SECONDS) as answer:
                content: bytes = answer.read()
        except urllib.error.HTTPError as error:
            raise self._error(error, lister) from error
        except http.client.HTTPException as error:
            raise UnreachableError(self._no_hub()) from error
        except OSError as error:
            raise UnreachableError(self._unreachable(str(getattr(error, "reason", error)))) from error
        return content

    def _unreachable(self, reason: str) -> str:
        for signs, (plain, remedy) in REASONS.items():
            if any(sign in reason for sign in signs.split("|")):
                return f"cannot reach the hub at {self._base}: {plain}. {remedy}"
        return f"cannot reach the hub at {self._base}. {REMEDY}. ({reason})"

    def _no_hub(self) -> str:
        return f"{self._base} does not answer as a hub of this version. {REMEDY}, with https:// for TLS"

    def _error(self, error: urllib.error.HTTPError, lister: str) -> UserError:
        try:
            reason = str(json.load(error)["error"])
        except (OSError, ValueError, KeyError, TypeError):
            target = f", and redirects to {location}" if (location := error.headers.get("Location")) else ""
            return UnreachableError(f"{self._no_hub()}; it answers {error.code} {error.reason}{target}")
        match error.code:
            case HTTPStatus.UNAUTHORIZED if not self._headers:
                return RefusedError(f"the hub at {self._base} needs a token, and none was given.", TOKEN_HINT)
            case HTTPStatus.UNAUTHORIZED:
                reason = reason.partition(";")[0]
                return RefusedError(f"the hub at {self._base} refuses the token: {reason}.", TOKEN_HINT)
            case HTTPStatus.NOT_FOUND:
                return NotFoundError(f"{reason}. {lister}" if lister else reason)
        return RefusedError(f"the hub at {self._base} refuses: {reason}")
