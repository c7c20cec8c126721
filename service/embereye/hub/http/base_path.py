"""The path below which the hub appears to browsers, such as /fire behind a shared host name.

A proxy in front of the hub can remove that path from requests or not. The hub serves every route both with it and
without it, so both work. Addresses that it hands out to browsers always have it: redirections, cookies, and the links
of its pages. JSON answers name paths below the hub's address, as `servers` of the OpenAPI document says.
"""

import re

from aiohttp import web

SEGMENT = r"/[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
BASE_PATH = re.compile(f"(?:{SEGMENT})*")
MAX_LENGTH = 200  # characters
# The first parts of the hub's routes.
OWN = frozenset({"healthz", "login", "metrics", "readyz", "runbooks", "service-worker.js", "static", "v1"})
BASE: web.AppKey[str] = web.AppKey("base_path", str)


def read_base_path(text: str) -> str:
    """Return `text` without a slash at its end, "" for the root; ValueError if it is not a plain path."""
    path = text.rstrip("/")
    if not BASE_PATH.fullmatch(path) or len(path) > MAX_LENGTH:
        allowed = "Use letters, digits and . _ ~ - in it, without a dot after a slash"
        raise ValueError(f'"{text[:MAX_LENGTH]}" is not a path such as /fire. {allowed}.')
    if (first := first_segment(path)) in OWN:
        raise ValueError(f'"{text}" begins with /{first}, which is a page of the hub itself. Choose another name.')
    return path


def first_segment(path: str) -> str:
    """Return the first part of `path`, such as "fire" of "/fire/alarms"; "" for the root."""
    return path.partition("/")[2].partition("/")[0]


def base_of(request: web.Request) -> str:
    """The base path of the hub that answers `request`; "" at the root."""
    return request.app[BASE]


def below_base(request: web.Request) -> str:
    """The request's path without the base path."""
    base = base_of(request)
    return request.path.removeprefix(base) if base and request.path.startswith(f"{base}/") else request.path


def with_base(html: str, base: str) -> str:
    """Return the page `html` with its links below `base`; its scripts read data-base."""
    if not base:
        return html
    linked = re.sub(r'(href|src)="/', rf'\1="{base}/', html)
    return linked.replace("<html ", f'<html data-base="{base}" ', 1)
