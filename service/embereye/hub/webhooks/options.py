"""Reads the file that declares the webhooks.

`embereye hub` reads it once at its start, and refuses to start if it is wrong. Each field has a check that raises
WrongError; the callers prefix its place, as in `webhooks[2].url: …`. Secrets are in other files, whose paths it
contains.
"""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embereye.hub.tables.selection import EVERYTHING, Selection, read_selection
from embereye.hub.webhooks.formats import FORMATS
from embereye.process.lifecycle import UserError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MAX_WEBHOOKS = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class WrongError(ValueError):
    """The file's declaration of webhooks is wrong."""


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
    except WrongError as error:
        raise UserError(f"--webhooks {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"--webhooks {path} is not JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise WrongError(f'the key "{twice[:80]}" occurs twice')
    return values


def parse_webhooks(document: object) -> list[WebhookOptions]:
    """Read the webhooks from a file's content; WrongError."""
    listed = document.get("webhooks") if isinstance(document, dict) and set(document) <= {"webhooks"} else None
    if not isinstance(listed, list):
        raise WrongError('it is not {"webhooks": [{"name": "...", "url": "..."}, ...]}')
    if len(listed) > MAX_WEBHOOKS:
        raise WrongError(f"webhooks: {len(listed)} are too many. Declare at most {MAX_WEBHOOKS}.")
    webhooks: dict[str, WebhookOptions] = {}
    for number, declared in enumerate(listed):
        where = f"webhooks[{number}]"
        if not isinstance(declared, dict):
            raise WrongError(f"{where} is not an object")
        try:
            options = _parse(declared)
        except ValueError as error:
            raise WrongError(f"{where}.{error}") from error
        if options.name in webhooks:
            raise WrongError(f'{where}.name: "{options.name}" is declared twice')
        webhooks[options.name] = options
    return list(webhooks.values())


FIELDS = ("name", "url", "urlFile", "format", "secretFile", "tokenFile", "caFile", "select", "timeoutSeconds",
          "giveUpAfterSeconds", "allow")  # fmt: skip


def _parse(declared: Mapping[str, Any]) -> WebhookOptions:
    for field in declared:
        if field not in FIELDS:
            raise WrongError(f"{str(field)[:80]} is not one of {', '.join(FIELDS)}")
    name, url, form = _text(declared, "name"), _text(declared, "url"), _text(declared, "format") or "generic"
    if not NAME.fullmatch(name):
        raise WrongError(f'name: "{name[:80]}" is not a name. Use 1 to 63 lower-case letters, digits and dashes.')
    if bool(url) == ("urlFile" in declared):
        raise WrongError("url: set either url or urlFile")
    if url:
        check_url(url)
    if form not in FORMATS:
        raise WrongError(f'format: "{form[:80]}" is not one of {", ".join(FORMATS)}')
    selected = declared.get("select", {})
    if not isinstance(selected, dict):
        raise WrongError('select is not an object such as {"levels": ["alarm"]}')
    try:
        selection = read_selection(selected)
    except ValueError as error:
        raise WrongError(f"select.{error}") from error
    return WebhookOptions(
        name=name, url=url, url_file=_file(declared, "urlFile"), format=form,
        secret_file=_file(declared, "secretFile"), token_file=_file(declared, "tokenFile"),
        ca_file=_file(declared, "caFile"), selection=selection,
        timeout=_seconds(declared, "timeoutSeconds", 10.0, 60.0),
        give_up=_seconds(declared, "giveUpAfterSeconds", 3_600.0, 30 * 86_400.0), allow=_networks(declared),
    )  # fmt: skip


def check_url(url: str) -> None:
    """Raise ValueError if `url` cannot be called."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise WrongError(f'url: "{_shown(url)}" is not an address: {error}') from error
    if parts.scheme not in {"http", "https"} or not host:
        raise WrongError(f'url: "{_shown(url)}" is not of the form https://HOST/PATH')
    if parts.username is not None:
        raise WrongError("url: it contains a user. Put a token into tokenFile instead.")


def _shown(url: str) -> str:
    """The part of an address that may be logged: its path and query may be secrets."""
    return url.partition("?")[0][:40]


def _text(declared: Mapping[str, Any], field: str) -> str:
    value = declared.get(field, "")
    if not isinstance(value, str):
        raise WrongError(f"{field}: {json.dumps(value)[:80]} is not a string")
    return value


def _file(declared: Mapping[str, Any], field: str) -> Path | None:
    text = _text(declared, field)
    return Path(text) if text else None


def _seconds(declared: Mapping[str, Any], field: str, default: float, most: float) -> float:
    value = declared.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise WrongError(f"{field}: {json.dumps(value)[:80]} is not a number of seconds up to {most:.0f}")
    return float(value)


def _networks(declared: Mapping[str, Any]) -> tuple[Network, ...]:
    listed = declared.get("allow", [])
    if not isinstance(listed, list):
        raise WrongError("allow is not a list of networks such as 127.0.0.0/8")
    try:
        return tuple(ipaddress.ip_network(text) for text in listed)
    except ValueError as error:
        raise WrongError(f"allow: {error}") from error
