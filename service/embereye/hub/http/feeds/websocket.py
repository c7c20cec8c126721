"""The feed over a WebSocket: events as JSON or protobuf, with a selection that the client can change.

A socket has a `Subscription` of the hub's feed, and tasks that send events, read the client's messages and send signs
of life. While the client is behind, the sender fetches events and waits until the client has read them. Once it has
caught up, the feed pushes finished frames directly to its transport. If too much is unread, the sender fetches again.

The position is the subscription's, so a client that reconnects with its last cursor misses nothing. The socket ends
when the client leaves, does not keep up or loses its token.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable

from aiohttp import WSCloseCode, WSMsgType, web

from embereye.hub.access.keeper import RevokedError
from embereye.hub.database import StoreError
from embereye.hub.feeds.feed import (
    ClosedError,
    Entry,
    Form,
    Subscription,
    TooSlowError,
    alive_seconds,
)
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.access.origin import check_origin
from embereye.hub.http.feeds.subscriptions import TAKES, selection_of
from embereye.hub.http.openapi.parts import Json, answer, query, whole
from embereye.hub.http.parameters import number_of, one_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.roles import Role, Scope
from embereye.hub.tables.selection import Selection, read_selection
from embereye.process.tasks import beside

HEARTBEAT_SECONDS = 10.0
CLOSE_SECONDS = 1.0  # for a client to read the last messages
MAX_MESSAGE = 256 * 1024  # bytes of a client's message: a selection
MAX_REASON = 120  # bytes of the reason for closing: a close frame has room for 123
WAITING_BYTES = 64 * 1024  # unread data of a client that has events pushed; beyond it, the client fetches them
FORMATS: dict[str, Form] = {"json": "text_frame", "binary": "binary_frame"}
SLOW, UNSTORED = ("disconnect", "coalesce"), ("no", "yes")
OPCODES: dict[Form, WSMsgType] = {"text_frame": WSMsgType.TEXT, "binary_frame": WSMsgType.BINARY}


def web_socket(request: web.Request, max_message: int) -> web.WebSocketResponse:
    """Make the WebSocket that `request` asks for, to be prepared; Refused if it asks for none.

    A write waits while the client has unread data. The client's messages have at most `max_message` bytes.
    """
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_SECONDS, compress=False, max_msg_size=max_message, timeout=0.5, writer_limit=0
    )
    if not socket.can_prepare(request):
        raise Refused(426, "this is a WebSocket. Request the upgrade.", {"Upgrade": "websocket"})
    return socket


class FeedSocket(HubRoutes):
    """Serves WebSockets of alarm events."""

    @Route(
        "GET", "/v1/alarms/ws", Role.VIEWER,
        "A WebSocket of AlarmEvents, one per message: events after `cursor`, then live events. A text message "
        'with {"select": Selection} or {"subscription": NAME} changes the selection; the answer is a text '
        'message with {"selected": Selection, "cursor": CURSOR}, or with an error',
        {101: answer("it is open")},
        takes=[
            query("cursor", whole(), "continue after it; missing: start with the next event"),
            query(
                "format",
                {"type": "string", "enum": list(FORMATS)},
                "json (default): text messages; binary: protobuf in binary messages",
            ),
            query(
                "slow",
                {"type": "string", "enum": list(SLOW)},
                "for a client far behind: close (default), or send the newest event of each zone and device",
            ),
            query(
                "alive_ms",
                {"type": "integer", "minimum": 1_000},
                "send an event of TYPE_ALIVE every so many milliseconds: its cursor says up to which event "
                "everything was sent, its why says what the hub cannot do; default: never",
            ),
            query(
                "unstored",
                {"type": "string", "enum": list(UNSTORED)},
                "yes: while the hub can store nothing, send events immediately, marked as unstored and "
                "without a cursor, and again once they are stored",
            ),
            *TAKES,
        ],
        fails=(400, 404, 409, 426, 503),
        scoped=True,
    )  # fmt: skip
    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one client until it leaves."""
        check_origin(request)
        feed = self._hub.feed
        after = number_of(request, "cursor", feed.latest)
        form = FORMATS[one_of(request, "format", tuple(FORMATS))]
        slow = one_of(request, "slow", SLOW)
        unstored = one_of(request, "unstored", UNSTORED) == "yes"
        alive = alive_seconds(number_of(request, "alive_ms", 0))
        selection = selection_of(request, self._hub.subscriptions)
        socket = web_socket(request, MAX_MESSAGE)
        with feed.subscribe(after, selection, request.remote or "", coalescing=slow == "coalesce",
                            unstored=unstored) as subscription:  # fmt: skip
            await socket.prepare(request)
            try:
                async with self._hub.access.until_revoked(request[PRINCIPAL]):
                    await self._converse(request, socket, subscription, form, alive)
            except RevokedError as error:
                await _close(request, socket, WSCloseCode.POLICY_VIOLATION, error)
        return socket

    async def _converse(
        self, request: web.Request, socket: web.WebSocketResponse, subscription: Subscription, form: Form, alive: float
    ) -> None:
        sending, reading = (
            _send(request, socket, subscription, form),
            self._read_all(socket, subscription, request[PRINCIPAL].scope),
        )
        async with (
            beside(sending, name="websocket-send") as sends,
            beside(reading, name="websocket-read") as reads,
            beside(self._send_alive(socket, subscription, form, alive), name="websocket-alive"),
        ):
            # If a client reads nothing, the reading task does not see that it has left.
            await asyncio.wait((sends, reads), return_when=asyncio.FIRST_COMPLETED)
            for ended in (sends, reads):
                if ended.done():
                    ended.result()

    async def _send_alive(
        self, socket: web.WebSocketResponse, subscription: Subscription, form: Form, period: float
    ) -> None:
        with contextlib.suppress(ConnectionError):  # the sending task notices too
            while period:
                entry = self._hub.sign_of_life(subscription.position)
                await socket.send_frame(entry.payload(form), OPCODES[form])
                await asyncio.sleep(period)

    async def _read_all(self, socket: web.WebSocketResponse, subscription: Subscription, scope: Scope) -> None:
        async for message in socket:  # this also answers pings and notices the end
            if message.type is WSMsgType.TEXT:
                await socket.send_json(self._change(message.data, subscription, scope))

    def _change(self, text: str, subscription: Subscription, scope: Scope) -> Json:
        """Handle a client's {"select": {...}} or {"subscription": NAME}; return the answer."""
        try:
            selection = self._read(text).within(scope)
        except (ValueError, LookupError, RecursionError) as error:
            return {"error": str(error.args[0] if error.args else error)}
        cursor = subscription.select(selection)
        return {"selected": selection.words, "cursor": str(cursor)}

    def _read(self, text: str) -> Selection:
        try:
            message = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the message is not JSON: {error}") from error
        if isinstance(message, dict) and set(message) == {"select"} and isinstance(message["select"], dict):
            return read_selection(message["select"])
        if isinstance(message, dict) and set(message) == {"subscription"} and isinstance(message["subscription"], str):
            return self._hub.subscriptions.find(message["subscription"]).selection
        raise ValueError('the message is not {"select": {"zones": [...], ...}} or {"subscription": "NAME"}')


def _writer(request: web.Request) -> Callable[[bytes], bool]:
    """Make a function that writes whole frames to a client; it returns False if too much data is unread."""
    transport = request.transport
    assert transport is not None
    waiting, closing, write = transport.get_write_buffer_size, transport.is_closing, transport.write

    def push(data: bytes) -> bool:
        try:
            if closing():
                return True  # the reading task notices
            if waiting() > WAITING_BYTES:
                return False
            write(data)
        except (OSError, RuntimeError):  # uvloop raises the latter for a connection that has just ended
            return True
        return True

    return push


async def _close(request: web.Request, socket: web.WebSocketResponse, code: WSCloseCode, why: Exception) -> None:
    """Close `socket` with a reason; a client that reads nothing is disconnected without."""
    transport = request.transport
    text = str(why).encode()[:MAX_REASON].decode(errors="ignore")
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await socket.close(code=code, message=text.encode())
    except TimeoutError:
        if transport is not None:
            transport.abort()


async def _send(request: web.Request, socket: web.WebSocketResponse, subscription: Subscription, form: Form) -> None:
    push = _writer(request)

    async def send(entry: Entry) -> None:
        await socket.send_frame(entry.payload(form), OPCODES[form])

    try:
        while True:
            if subscription.caught_up:
                await subscription.push(form, push)
            else:
                await subscription.deliver(send)
    except (TooSlowError, StoreError) as error:
        await _close(request, socket, WSCloseCode.TRY_AGAIN_LATER, error)
    except ClosedError as error:
        await _close(request, socket, WSCloseCode.GOING_AWAY, error)
    except ConnectionError:
        await socket.close()
