"""What requests carry: numbers in the query, texts in a body. What cannot be meant is refused by name."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiohttp import web

from embereye.hub.http.refused import Refused

MAX_DIGITS = 19
BODY_SECONDS = 10.0  # for all of it


def number_of(request: web.Request, name: str, default: int, most: int = 2**63 - 1) -> int:
    """The parameter `name` of the query, or `default` where it is not given; Refused where it is no whole number."""
    text = request.query.get(name, "")
    if not text:
        return default
    # The length first: Python does not convert thousands of digits, and says so with another error.
    if len(text) > MAX_DIGITS or not text.isascii() or not text.isdigit() or int(text) > most:
        raise Refused(400, f'{name}: "{text[:50]}" is not a whole number from 0 to {most}')
    return int(text)


def one_of(request: web.Request, name: str, words: Sequence[str]) -> str:
    """The parameter `name` of the query, which is one of `words`; the first where it is not given. Refused."""
    word = request.query.get(name, words[0])
    if word not in words:
        raise Refused(400, f'{name}: "{word[:80]}" is not one of {", ".join(words)}')
    return word


@contextlib.asynccontextmanager
async def arriving(what: str, seconds: float) -> AsyncIterator[None]:
    """While `what`, a request's body, is read; Refused where it does not come whole, or not within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Refused(408, f"{what} did not arrive within {seconds:.0f} s") from None
    except (ConnectionError, web.RequestPayloadError) as error:
        raise Refused(400, f"{what} broke off, or is not in the Content-Encoding that it names") from error


async def read_json(request: web.Request) -> dict[str, Any]:
    """The object that a request's body is; Refused where it is none."""
    # A form of another site cannot send this type without asking first.
    if request.content_type != "application/json":
        raise Refused(415, f'Content-Type "{request.content_type}": send application/json')
    try:
        async with arriving("the body", BODY_SECONDS):
            body = await request.json()
    except LookupError as error:
        raise Refused(415, f'charset "{(request.charset or "")[:50]}": send UTF-8') from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {str(error)[:200]}") from error
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object")
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can write one; nothing that keeps or sends texts can
        raise Refused(400, "what is in the body is no text: it has half of a character (a lone surrogate)") from None
    return body


def text_of(body: dict[str, Any], name: str) -> str:
    """The field `name` of a body, '' where it is missing; Refused where it is no text."""
    text = body.get(name, "")
    if not isinstance(text, str):
        raise Refused(400, f"{name}: {json.dumps(text)[:80]} is not a string")
    return text
