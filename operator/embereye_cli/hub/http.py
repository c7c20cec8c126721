"""The hub's HTTP API, as commands read it.

Commands that read pages instead of gRPC use `HttpHub` with a `ConsoleConnection`. Redirections and the environment's
proxy are ignored, because another server would receive the token. Each failure becomes a UserError with a remedy: the
hub's sentence from its JSON answer if there is one, else a plain sentence for the system's reason.
"""

import contextlib
import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2 as httpx  # the HTTP client of lightkube

from embereye.process.lifecycle import NotFoundError, RefusedError, UnreachableError, UserError
from embereye_cli.hub.connection import ConsoleConnection
from embereye_cli.hub.errors import token_error, unreachable
from embereye_cli.hub.zones import match_zone

SECONDS = 30.0  # to wait for an answer
DOWNLOAD_SECONDS = 900.0  # to wait for the next bytes of a file that the hub makes first
REMEDY = "--console names the hub's HTTP port"
# What TLS or the system says if no hub can be reached → what is wrong, in plain words, and what to do.
REASONS = {
    "WRONG_VERSION_NUMBER": ("it does not use TLS on this port", "Begin --console with http://."),
    "(Hostname|IP address) mismatch": (
        "its certificate has another name",
        "Give a name that it has with --server-name.",
    ),
    "CERTIFICATE_VERIFY_FAILED": ("its certificate is not trusted", "Name the authority that signed it with --ca."),
    "Connection refused": ("connection refused", "Is it running?"),
    "Name or service not known|No address": ("there is no such host", "Check the name."),
    "timed out": ("it does not answer in time", "Is it running?"),
}


class HttpHub:
    """A hub's console. Each failure raises a UserError that says what is wrong and what to do."""

    def __init__(self, connection: ConsoleConnection) -> None:
        self._base = connection.url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        # Like gRPC, without the environment's proxy: it is for the outside, and would receive our token. A redirection
        # is not followed, because the server that it leads to would receive the token, too.
        self._client = httpx.Client(verify=connection.trust, trust_env=False, timeout=SECONDS, headers=self._headers)
        # A certificate may have another name than the URL.
        self._extensions = {"sni_hostname": connection.server_name} if connection.server_name else {}

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
        method = "GET" if body is None else "POST"
        with self._translated():
            answer = self._client.request(method, self._base + path, json=body, extensions=self._extensions)
        if not answer.is_success:
            raise self._error(answer, lister)
        return answer.content

    def download(self, path: str, file: Path) -> str:
        """Write the content at `path`, which the hub may take minutes to make, to `file`; return its Repr-Digest.

        OSError if the file cannot be written.
        """
        timeout = httpx.Timeout(SECONDS, read=DOWNLOAD_SECONDS)
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(file.open("wb"))
            with self._translated():
                answering = self._client.stream("GET", self._base + path, timeout=timeout, extensions=self._extensions)
                answer = stack.enter_context(answering)
                if not answer.is_success:
                    answer.read()
            if not answer.is_success:
                raise self._error(answer, "")
            pieces = answer.iter_raw()
            while True:
                with self._translated():
                    piece = next(pieces, b"")
                if not piece:
                    return str(answer.headers.get("Repr-Digest", ""))
                opened.write(piece)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise UnreachableError with the reason in plain words for errors of the connection."""
        try:
            yield
        except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
            raise UnreachableError(self._no_hub()) from error
        except (httpx.HTTPError, OSError) as error:
            sentence = unreachable(self._base, str(error), reasons=REASONS, remedy=f"{REMEDY}.")
            raise UnreachableError(sentence) from error

    def zone_path(self, name: str, action: str) -> str:
        """The path of `action` on the zone `name`; NotFoundError, or UserError if several zones have that name."""
        titles = [f"{zone['namespace']}/{zone['name']}" for zone in self.read("/v1/zones", "zones")["zones"]]
        return f"/v1/zones/{quote(match_zone(name, titles))}/{action}"

    def _no_hub(self) -> str:
        return f"{self._base} does not answer as a hub of this version. {REMEDY}, with https:// for TLS"

    def _error(self, answer: httpx.Response, lister: str) -> UserError:
        try:
            reason = str(answer.json()["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            target = f", and redirects to {location}" if (location := answer.headers.get("Location")) else ""
            return UnreachableError(f"{self._no_hub()}; it answers {answer.status_code} {answer.reason_phrase}{target}")
        match answer.status_code:
            case HTTPStatus.UNAUTHORIZED:
                return token_error(self._base, reason, presented=bool(self._headers))
            case HTTPStatus.NOT_FOUND:
                return NotFoundError(f"{reason}. {lister}" if lister else reason)
        return RefusedError(f"the hub at {self._base} refuses: {reason}")
