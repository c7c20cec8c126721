"""Serve `POST /v1/readings`: devices send readings to any shard of their fleet.

A request is authenticated before its body is read. It is answered with 202 once each of its messages has been analysed
by the shard that owns the device, as for text lines; signs of fire are then in that shard's spool.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from embereye.addons.http_sensors.metrics import Counts
from embereye.process.http.connections import Connections
from embereye.process.http.server import bound_port, serve_http
from embereye.sensor.source import Listening, Message, Outcome, Router
from embereye.shard.access import Grant, NotAdmittedError, NoTokenError, names_of
from embereye.wire.readings.pushed import TooManyEntriesError, device_of, split

MAX_BODY = 1024 * 1024  # bytes
MAX_WAITING = 32 * MAX_BODY  # bytes of all bodies that are being received
RATE, BURST = 20.0, 2000.0  # messages a second of one device, and most at once
BODY_SECONDS = 10.0  # in which a body has to arrive
MAX_PROBLEMS = 20  # listed in an answer
RETRY_SECONDS = 1
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines")
ADVICE = (
    'POST {"device": "ID", "readings": {"smoke": false}} to /v1/readings, or a device\'s message to /v1/readings/ID'
)


@dataclass
class _Bucket:
    tokens: float = BURST
    since: float = 0.0  # monotonic seconds


class _RefusedError(Exception):
    """A request that is refused, and its answer."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.answer = _problem(status, why, headers)


class PushServer:
    """The HTTP server of a shard."""

    def __init__(self, router: Router, counts: Counts) -> None:
        self._router = router
        self._counts = counts
        self._runner: web.AppRunner | None = None
        self._waiting = 0  # bytes of bodies that are being received
        self._draining = False
        self._buckets: dict[str, _Bucket] = {}  # by declared device

    async def start(self, at: Listening) -> None:
        """Listen; UserError if the address cannot be used."""
        app = web.Application(middlewares=[self._answer_errors], client_max_size=MAX_BODY)
        app.router.add_post("/v1/readings", self._readings)
        app.router.add_post("/v1/readings/{device}", self._message)
        self._runner = await serve_http(app, at.host, at.port, at.tls, connections=Connections(), shared=True)

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return bound_port(self._runner) if self._runner else 0

    async def stop(self) -> None:
        """Accept nothing more; requests that have arrived are still answered."""
        self._draining = True
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Count the answer, and answer errors of HTTP as JSON."""
        try:
            answer: web.StreamResponse = await handler(request)
        except _RefusedError as error:
            answer = error.answer
        except web.HTTPException as error:
            problem = f"{error.reason}. {ADVICE}" if error.status in (404, 405) else str(error.reason)
            headers = {name: value for name, value in error.headers.items() if name == "Allow"}
            answer = _problem(error.status, problem, headers)
        self._counts.requests[answer.status] += 1
        return answer

    async def _readings(self, request: web.Request) -> web.Response:
        """Answer `POST /v1/readings`: entries in our own format."""
        grant, body = self._admit(request), await self._body(request)
        try:
            entries = split(body, lines=request.content_type in LINES)
            messages = [Message(device_of(entry, grant.device or ""), entry) for entry in entries]
        except TooManyEntriesError as error:
            raise _RefusedError(413, str(error)) from error
        except ValueError as error:
            raise _RefusedError(400, str(error)) from error
        return await self._deliver(grant, messages)

    async def _message(self, request: web.Request) -> web.Response:
        """Answer `POST /v1/readings/DEVICE`: a message as the device writes it, read by its declared fields."""
        grant, body = self._admit(request), await self._body(request)
        return await self._deliver(grant, [Message(request.match_info["device"], body, mapped=True)])

    def _admit(self, request: web.Request) -> Grant:
        """Return the devices that `request` may speak for, or raise the answer that refuses it."""
        if self._draining:
            raise _RefusedError(503, "this shard is shutting down: send it again", _again(RETRY_SECONDS))
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        names = names_of(certificate) if certificate else None
        token = [("authorization", text) for text in request.headers.getall("Authorization", ())[:1]]
        try:
            return self._router.admit((request.remote or "").removeprefix("::ffff:"), token, names)
        except NoTokenError as error:
            text = str(error).replace('metadata "authorization', 'header "Authorization')
            raise _RefusedError(401, text, {"WWW-Authenticate": "Bearer"}) from error
        except NotAdmittedError as error:
            raise _RefusedError(403, str(error)) from error

    async def _body(self, request: web.Request) -> bytes:
        """Return the body, or raise the answer that refuses it."""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _RefusedError(415, "compressed bodies are not accepted: send it without Content-Encoding")
        size = request.content_length if request.content_length is not None else MAX_BODY
        if size > MAX_BODY:
            raise _RefusedError(413, f"the body has {size} bytes, the most is {MAX_BODY}: split it")
        if self._waiting + size > MAX_WAITING:
            raise _RefusedError(429, "too many bodies are being received: send it again", _again(RETRY_SECONDS))
        self._waiting += size
        try:
            if request.content.is_eof():
                return await request.read()  # it has arrived with the head, as nearly all do: a timer is not needed
            async with asyncio.timeout(BODY_SECONDS):
                return await request.read()
        except TimeoutError as error:
            raise _RefusedError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
        except web.HTTPRequestEntityTooLarge as error:
            raise _RefusedError(413, f"the body has more than {MAX_BODY} bytes: split it") from error
        finally:
            self._waiting -= size

    async def _deliver(self, grant: Grant, messages: Sequence[Message]) -> web.Response:
        """Have `messages` analysed, and answer with their outcomes."""
        if foreign := next((message.device for message in messages if not grant.is_for(message.device)), ""):
            raise _RefusedError(403, f'the credentials are for device "{grant.device}", not for "{foreign[:80]}"')
        if pause := self._pause([message.device for message in messages]):
            why = f"a device sends more than {RATE:g} messages a second: send it again in {pause} s"
            raise _RefusedError(429, why, _again(pause))
        return _answer(messages, await self._router.deliver(messages))

    def _pause(self, devices: Sequence[str]) -> int:
        """Return the seconds until the devices may send so many messages; 0: now, and they are counted."""
        now, counts = time.monotonic(), dict.fromkeys(devices, 0)
        for device in devices:
            counts[device] += 1
        buckets: dict[str, _Bucket] = {}
        for device, count in counts.items():
            if not self._router.is_declared(device):
                continue
            bucket = self._buckets.get(device) or _Bucket(BURST, now)
            bucket.tokens = min(BURST, bucket.tokens + (now - bucket.since) * RATE)
            bucket.since = now
            if min(count, BURST) > bucket.tokens:
                return max(1, math.ceil((min(count, BURST) - bucket.tokens) / RATE))
            buckets[device] = bucket
        for device, bucket in buckets.items():
            bucket.tokens -= min(counts[device], BURST)
        self._buckets |= buckets
        return 0


def _answer(messages: Sequence[Message], outcomes: Sequence[Outcome]) -> web.Response:
    """Answer 202 if all messages were accepted; else 503 if it helps to send them again, 404 or 422."""
    statuses = {outcome.status for outcome in outcomes}
    failed = [(number, outcome) for number, outcome in enumerate(outcomes, 1) if outcome.status != 202]
    accepted = len(outcomes) - len(failed)
    if not failed:
        return web.json_response({"accepted": accepted}, status=202)
    status = 503 if 503 in statuses else 404 if statuses == {404} else 422
    problems = [
        {"entry": number, "device": messages[number - 1].device, "problem": outcome.problem}
        for number, outcome in failed[:MAX_PROBLEMS]
    ]
    content = {"accepted": accepted, "refused": len(failed), "problems": problems}
    return web.json_response(content, status=status, headers=_again(RETRY_SECONDS) if status == 503 else {})


def _again(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def _problem(status: int, why: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"accepted": 0, "problem": why}, status=status, headers=headers)
