"""Reads the file that declares the webhooks.

`embereye hub` reads it once at its start, and refuses to start if it is wrong. Secrets are in other files, whose paths
it contains.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embereye.hub.tables.selection import EVERYTHING, Selection, read_selection
from embereye.hub.webhooks.formats import FORMATS
from embereye.process.fields import DeclaredError, Fields, Network
from embereye.process.lifecycle import UserError

MAX_WEBHOOKS = 64


@dataclass(frozen=True)
class WebhookOptions:
    """One webhook. Secrets are in files, which are read again for each delivery."""

    name: str
    url: str = ""
    url_file: Path | None = None  # instead of `url` if the address is a secret
    format: str = "generic"  # one of FORMATS
    secret_file: Path | None = None  # key of the deliveries' signatures; None: not signed
    token_file: Path | None = None  # bearer token; None: none
    selection: Selection = EVERYTHING
    timeout: float = 10.0  # seconds for one attempt
    give_up: float = 3_600.0  # seconds after which an undelivered event becomes a dead letter
    allow: tuple[Network, ...] = ()  # addresses that may be called although they are, say, this machine's
    ca_file: Path | None = None  # the authorities that the receiver's certificate may be from; None: this machine's


def read_webhooks(path: Path) -> list[WebhookOptions]:
    """Read the JSON file at `path`, {"webhooks": [{"name", "url", ...}]}; UserError names what is wrong."""
    try:
        return parse_webhooks(json.loads(path.read_bytes(), object_pairs_hook=_unique_keys))
    except OSError as error:
        raise UserError(f"--webhooks {path}: {error.strerror or error}") from error
    except DeclaredError as error:
        raise UserError(f"--webhooks {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"--webhooks {path} is not JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise DeclaredError(f'the key "{twice[:80]}" occurs twice')
    return values


def parse_webhooks(document: object) -> list[WebhookOptions]:
    """Read the webhooks from a file's content; DeclaredError."""
    return Fields(document).parse(_webhooks)


def _webhooks(fields: Fields) -> list[WebhookOptions]:
    if "webhooks" not in fields:
        raise fields.missing("webhooks", 'Write {"webhooks": [{"name": "...", "url": "..."}, ...]}.')
    return list(fields.unique("webhooks", _webhook, most=MAX_WEBHOOKS).values())


def _webhook(fields: Fields) -> WebhookOptions:
    name, url, url_file = fields.name(), fields.text("url", ""), fields.file("urlFile")
    if bool(url) == bool(url_file):
        raise fields.error("url", "set either url or urlFile")
    try:
        if url:
            check_url(url)
    except ValueError as error:
        raise fields.error("url", str(error)) from error
    try:
        selection = read_selection(fields.mapping("select"))
    except ValueError as error:
        raise fields.error("select", str(error)) from error
    return WebhookOptions(
        name=name,
        url=url,
        url_file=url_file,
        format=fields.choice("format", tuple(FORMATS), "generic"),
        secret_file=fields.file("secretFile"),
        token_file=fields.file("tokenFile"),
        ca_file=fields.file("caFile"),
        selection=selection,
        timeout=fields.seconds("timeoutSeconds", 10.0, 0.001, 60.0),
        give_up=fields.seconds("giveUpAfterSeconds", 3_600.0, 0.001, 30 * 86_400.0),
        allow=fields.networks("allow"),
    )


def check_url(url: str) -> None:
    """Raise ValueError if `url` cannot be called."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f'"{_shown(url)}" is not an address: {error}') from error
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f'"{_shown(url)}" is not of the form https://HOST/PATH')
    if parts.username is not None:
        raise ValueError("it contains a user. Put a token into tokenFile instead.")


def _shown(url: str) -> str:
    """The part of an address that may be logged: its path and query may be secrets."""
    return url.partition("?")[0][:40]
