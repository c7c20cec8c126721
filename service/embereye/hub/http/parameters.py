"""Reads numbers from a request's query and texts from its body. Impossible values are refused by name.

Handlers call these functions. A wrong value raises Refused, whose sentence names the parameter, the value and the
allowed form. A body has to be uncompressed and complete within a time limit.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiohttp import web

from embereye.hub.http.refused import Refused

MAX_DIGITS = 19
BODY_SECONDS = 10.0  # for a whole body


def number_of(request: web.Request, name: str, default: int, most: int = 2**63 - 1) -> int:
    """Read the parameter `name` of the query; `default` if it is missing. Refused if it is not a whole number."""
    text = request.query.get(name, "")
    if not text:
        return default
    # Check the length first: Python refuses to convert thousands of digits, with another error.
    if len(text) > MAX_DIGITS or not text.isascii() or not text.isdigit() or int(text) > most:
        raise Refused(400, f'{name}: "{text[:50]}" is not a whole number from 0 to {most}')
    return int(text)


def one_of(request: web.Request, name: str, words: Sequence[str]) -> str:
    """Read the parameter `name` of the query, which is one of `words`; the first if it is missing. Refused."""
    word = request.query.get(name, words[0])
    if word not in words:
        raise Refused(400, f'{name}: "{word[:80]}" is not one of {", ".join(words)}')
    return word


@contextlib.asynccontextmanager
async def arriving(request: web.Request, name: str, seconds: float) -> AsyncIterator[None]:
    """Guard the reading of the body of `request`, called `name`.

    Refused if the body is compressed or incomplete, or takes over `seconds`.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        # A few bytes can decompress to gigabytes, and no client of the hub compresses.
        refusal = f'Content-Encoding "{encoding[:50]}": send {name} as it is'
        raise Refused(400, refusal, {"Accept-Encoding": "identity"})
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Refused(408, f"{name} did not arrive within {seconds:.0f} s") from None
    except (ConnectionError, web.RequestPayloadError) as error:
        raise Refused(400, f"{name} is incomplete") from error


async def read_json(request: web.Request) -> dict[str, Any]:
    """Read the JSON object of a request's body; Refused."""
    # A form on another site's page cannot send this type without asking the hub first.
    if request.content_type != "application/json":
        raise Refused(415, f'Content-Type "{request.content_type}": send application/json')
    try:
        async with arriving(request, "the body", BODY_SECONDS):
            body = await request.json()
    except LookupError as error:
        raise Refused(415, f'charset "{(request.charset or "")[:50]}": send UTF-8') from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {str(error)[:200]}") from error
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object")
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can have one, but nothing that stores or sends text can
        raise Refused(400, "the body has half of a character (a lone surrogate)") from None
    return body


def texts_of(body: dict[str, Any], name: str) -> list[str]:
    """Read the list of texts `name` of a body; [] if it is missing. Refused if it is not one."""
    texts = body.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"{name}: {json.dumps(texts)[:80]} is not a list of strings")
    return list(texts)


def amount_of(body: dict[str, Any], name: str) -> float:
    """Read the number `name` of a body; Refused if it is missing or is not one."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise Refused(400, f"{name}: {json.dumps(value)[:80]} is not a number")
    return float(value)


def whole_of(body: dict[str, Any], name: str) -> int:
    """Read the whole number `name` of a body; Refused if it is missing or is not one."""
    value = body.get(name)
    # JSON Schema counts 5.0 as an integer, and so does this.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise Refused(400, f"{name}: {json.dumps(value)[:80]} is not a whole number")
    return int(value)


def text_of(body: dict[str, Any], name: str) -> str:
    """Read the text field `name` of a body; '' if it is missing. Refused if it is not a text."""
    text = body.get(name, "")
    if not isinstance(text, str):
        raise Refused(400, f"{name}: {json.dumps(text)[:80]} is not a string")
    return text
