"""Which webhooks there are: what their file says."""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embereye.hub.feeds.selection import EVERYTHING, Selection, read_selection
from embereye.hub.webhooks.formats import FORMATS
from embereye.process.lifecycle import UserError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MOST = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class WrongError(ValueError):
    """A file declares what is no webhook."""


@dataclass(frozen=True)
class WebhookOptions:
    """One webhook. What is secret is in files, which are read again for each delivery."""

    name: str
    url: str = ""
    url_file: Path | None = None  # instead of `url`, where the address itself is a secret
    format: str = "generic"  # one of FORMATS
    secret_file: Path | None = None  # that deliveries are signed with; None: they are not
    token_file: Path | None = None  # shown as a bearer token; None: none
    selection: Selection = EVERYTHING
    timeout: float = 10.0  # seconds for one attempt
    give_up: float = 3_600.0  # seconds after an event, when it becomes a dead letter
    allow: tuple[Network, ...] = ()  # addresses that may be called although they are this machine's, for example


def read_webhooks(path: Path) -> list[WebhookOptions]:
    """What the JSON file at `path` declares, {"webhooks": [{"name", "url", ...}]}; UserError names what is wrong."""
    try:
        return parse_webhooks(json.loads(path.read_bytes(), object_pairs_hook=_each_once))
    except OSError as error:
        raise UserError(f"--webhooks {path}: {error.strerror or error}") from error
    except WrongError as error:
        raise UserError(f"--webhooks {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"--webhooks {path} is not JSON: {error}") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise WrongError(f'the key "{twice[:80]}" is there twice')
    return found


def parse_webhooks(document: object) -> list[WebhookOptions]:
    """The webhooks of a file's content; WrongError."""
    listed = document.get("webhooks") if isinstance(document, dict) and set(document) <= {"webhooks"} else None
    if not isinstance(listed, list):
        raise WrongError('it is not {"webhooks": [{"name": "...", "url": "..."}, ...]}')
    if len(listed) > MOST:
        raise WrongError(f"webhooks: {len(listed)} are more than {MOST}")
    found: dict[str, WebhookOptions] = {}
    for number, one in enumerate(listed):
        where = f"webhooks[{number}]"
        if not isinstance(one, dict):
            raise WrongError(f"{where} is no object")
        try:
            options = _parse(one)
        except ValueError as error:
            raise WrongError(f"{where}.{error}") from error
        if options.name in found:
            raise WrongError(f'{where}.name: "{options.name}" is declared twice')
        found[options.name] = options
    return list(found.values())


FIELDS = ("name", "url", "urlFile", "format", "secretFile", "tokenFile", "select", "timeoutSeconds",
          "giveUpAfterSeconds", "allow")  # fmt: skip


def _parse(one: Mapping[str, Any]) -> WebhookOptions:
    for field in one:
        if field not in FIELDS:
            raise WrongError(f"{str(field)[:80]} is not one of {', '.join(FIELDS)}")
    name, url, form = _text(one, "name"), _text(one, "url"), _text(one, "format") or "generic"
    if not NAME.fullmatch(name):
        raise WrongError(f'name: "{name[:80]}" is not lower-case letters, digits and dashes, at most 63')
    if bool(url) == ("urlFile" in one):
        raise WrongError("url: say either url or urlFile")
    if url:
        check_url(url)
    if form not in FORMATS:
        raise WrongError(f'format: "{form[:80]}" is not one of {", ".join(FORMATS)}')
    selected = one.get("select", {})
    if not isinstance(selected, dict):
        raise WrongError('select is no object such as {"levels": ["alarm"]}')
    try:
        selection = read_selection(selected)
    except ValueError as error:
        raise WrongError(f"select.{error}") from error
    return WebhookOptions(
        name=name, url=url, url_file=_file(one, "urlFile"), format=form, secret_file=_file(one, "secretFile"),
        token_file=_file(one, "tokenFile"), selection=selection,
        timeout=_seconds(one, "timeoutSeconds", 10.0, 60.0),
        give_up=_seconds(one, "giveUpAfterSeconds", 3_600.0, 30 * 86_400.0), allow=_networks(one),
    )  # fmt: skip


def check_url(url: str) -> None:
    """ValueError where `url` is nothing that can be called."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise WrongError(f'url: "{_shown(url)}" is no address: {error}') from error
    if parts.scheme not in {"http", "https"} or not host:
        raise WrongError(f'url: "{_shown(url)}" is not of the form https://HOST/PATH')
    if parts.username is not None:
        raise WrongError("url: it has a user in it: a token belongs into tokenFile")


def _shown(url: str) -> str:
    """As much of an address as may be told: its path and query may be secrets."""
    return url.partition("?")[0][:40]


def _text(one: Mapping[str, Any], field: str) -> str:
    value = one.get(field, "")
    if not isinstance(value, str):
        raise WrongError(f"{field}: {json.dumps(value)[:80]} is not a string")
    return value


def _file(one: Mapping[str, Any], field: str) -> Path | None:
    text = _text(one, field)
    return Path(text) if text else None


def _seconds(one: Mapping[str, Any], field: str, default: float, most: float) -> float:
    value = one.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise WrongError(f"{field}: {json.dumps(value)[:80]} is not a number of seconds up to {most:.0f}")
    return float(value)


def _networks(one: Mapping[str, Any]) -> tuple[Network, ...]:
    listed = one.get("allow", [])
    if not isinstance(listed, list):
        raise WrongError("allow is no list of networks such as 127.0.0.0/8")
    try:
        return tuple(ipaddress.ip_network(text) for text in listed)
    except ValueError as error:
        raise WrongError(f"allow: {error}") from error
