"""Sessions of text devices: one TCP connection each, lines in, bare command words out.

A session parses its bytes into lines, which `Routing` passes to the devices that they name. Nearly all lines are
quiet: they cross no threshold and are counted at once, without being parsed. All other bytes wait in the session for
the tick, which analyses the lines of many devices together; a line that crosses a threshold starts the tick at once.

Lines of a device that another shard owns are relayed to that shard (`relay.py`), where they arrive in a separate
session (`relay_service.py`).

`Sessions` limits the number of connections. If there are too many, it closes one that has sent no valid line, else one
that serves no device of the fleet.
"""

import asyncio
import logging
import math
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import cast

from embereye.process.admission import Admission, descriptors
from embereye.process.grpc_server import most_descriptors
from embereye.process.identity.credentials import expiry
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import EPOCH_OFFSET_NS, now_ns
from embereye.sensor.routing import Owner, Routing
from embereye.shard.access import NOTHING, Names, NotAdmittedError, names_of

logger = logging.getLogger(__name__)
MAX_CONNECTIONS = 20_000  # a process has 1,048,576 file descriptors at best; a building has fewer devices
RESERVED = 256  # descriptors for hub, other shards and files; those for gRPC are reserved in addition
SPEAK_SECONDS = 30.0  # for a new connection to send a valid line; a device names itself in its first one
OUTGOING_LIMIT = 4096  # bytes of commands that a device may leave unread; beyond it no more are sent
AHEAD_BYTES = 16 * 1024  # most waiting bytes that are parsed ahead of the tick, in search of an urgent line
# Bytes that may wait in one session. The kernel buffers as much again; more would only make the data older.
WAITING_LIMIT = 64 * 1024
RECEIVE_BUFFER = 64 * 1024
TOTAL_LIMIT = 32 * 1024 * 1024  # bytes waiting in all sessions from which each is limited to CROWDED_LIMIT
CROWDED_LIMIT = 2048
MAX_DENIED = 1_000  # addresses whose denial is remembered, so that it is logged once


class Sessions:
    """The open sessions of one shard's text listeners."""

    def __init__(self, owner: Owner) -> None:
        self.tasks = Tasks()  # tasks that the sessions started
        self._owner = owner
        self._latest_number = 0
        most = min(MAX_CONNECTIONS, descriptors() - RESERVED - most_descriptors())
        self._open: Admission[TextSession] = Admission(most, make_room=self._make_room)
        self._mute: dict[TextSession, float] = {}  # no valid line yet → when they connected, monotonic seconds
        self._unverified: dict[TextSession, None] = {}  # not yet known to serve a fleet's device, oldest first
        self._denied: OrderedDict[str, str] = OrderedDict()  # address → the reason that was logged
        self.handshakes_failed = 0  # TLS handshakes
        self.relayed = 0  # messages relayed to the shard that owns their device
        self.relay_dropped = 0

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> "TextSession":
        """Make the protocol of a new connection, as `create_server` needs it."""
        self._latest_number = max(self._latest_number + 1, now_ns())
        return TextSession(self._owner, self, self._latest_number)

    def add(self, session: "TextSession") -> bool:
        """Add an open session; False if there is no room."""
        if not self._open.admit(session):  # no limit for a client: a gateway is one for many devices
            return False
        self._unverified[session] = None
        self._mute[session] = time.monotonic()
        return True

    def note_valid_line(self, session: "TextSession") -> None:
        """Note that `session` has received a valid line."""
        self._mute.pop(session, None)

    def close_unusable(self) -> None:
        """Close connections without a valid line for too long, or with an expired certificate. Call it regularly."""
        now = time.time()
        for session in [session for session in self._open if session.tls and session.tls.expires < now]:
            session.close()
        due = time.monotonic() - SPEAK_SECONDS
        self._close_mute(sum(since < due for since in self._mute.values()))

    def _make_room(self, _: str) -> bool:
        """Close a session without a valid line, or else one that serves no device of the fleet; False if none is."""
        return self._close_mute(1) or self._close_useless()

    def _close_mute(self, count: int) -> bool:
        """Close the `count` sessions that have waited longest for a valid line; False if there is none."""
        longest = list(islice(self._mute, count))
        for session in longest:
            self.remove(session)
            session.abort()
        return bool(longest)

    def _close_useless(self) -> bool:
        """Close the oldest session that serves no device of the fleet; False if there is none."""
        while self._unverified:
            session = next(iter(self._unverified))
            del self._unverified[session]  # a session that serves a device is verified once
            if not session.is_serving_fleet_device:
                self.remove(session)
                session.abort()
                return True
        return False

    def admit(self, session: "TextSession") -> bool:
        """Set the devices that `session` may speak for, by the access rules; False if there are none."""
        if session.is_relayed or self._owner.is_own(session.peername):
            return True
        try:
            session.grant = self._owner.access.check_text(session.address, session.tls.names if session.tls else None)
        except NotAdmittedError as error:
            session.grant = NOTHING  # ignore waiting bytes, and those that are read while TLS ends
            self.deny(session.address, str(error))
            return False
        return True

    def deny(self, address: str, why: str, detail: str = "") -> None:
        """Log why the device at `address` is refused, once per reason: it dials again every second or so.

        `detail` is added to the line; it may differ with each line of the device.
        """
        if self._denied.get(address) != why:
            self._denied[address] = why
            if len(self._denied) > MAX_DENIED:
                self._denied.popitem(last=False)
            logger.warning("text device at %s: refused: %s%s", address, why, detail)

    def recheck(self) -> None:
        """Apply changed access rules: close every session that may now speak for other devices, or for none."""
        for session in [session for session in self._open if not session.in_tls_handshake]:
            granted = session.grant
            if not self.admit(session) or session.grant != granted:
                session.grant = NOTHING  # ignore its lines until it is closed
                session.close()

    def recheck_certified(self) -> None:
        """Close every session with TLS: certificates of another authority are required now."""
        for session in [session for session in self._open if session.tls and not session.in_tls_handshake]:
            session.close()

    def remove(self, session: "TextSession") -> None:
        """Remove a session that is closed."""
        self._open.forget(session)
        self._mute.pop(session, None)
        self._unverified.pop(session, None)

    def forget_routes(self) -> None:
        """Route the next line of every session without shortcuts: the assignment has changed."""
        for session in self._open:
            session.forget_route()

    def count_dropped(self, lines: int) -> None:
        """Count relayed lines that were dropped for lack of room."""
        self.relay_dropped += lines

    def close(self) -> None:
        """Close every connection: its device dials again and finds the shard that serves it now."""
        for session in self._open:
            session.close()

    async def stop(self) -> None:
        """Close every connection, and wait until all tasks of the sessions have ended."""
        self.close()
        await self.tasks.stop()


@dataclass(slots=True)
class TlsState:
    """The TLS state of a connection."""

    abort: Callable[[], None]  # ends the handshake
    names: Names | None = None  # names in the client's certificate
    expires: float = math.inf  # when that certificate expires, seconds since the Unix epoch


class TextSession(Routing, asyncio.Protocol):
    """One device's connection. Invalid lines are counted and skipped; they never end the session."""

    __slots__ = ("_paused", "_sessions", "_transport", "queued", "tls")

    def __init__(self, owner: Owner, sessions: Sessions, number: int) -> None:
        super().__init__(owner, sessions, number)
        self.queued = False
        self.tls: TlsState | None = None  # None: no TLS
        self._sessions = sessions
        self._transport: asyncio.Transport | None = None
        self._paused = False

    @property
    def peername(self) -> tuple[str, int]:
        """The remote host and port."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return (str(peer[0]), int(peer[1])) if peer else ("", 0)

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Note the start of a TLS handshake; False if there is no room. See `TlsListener`."""
        self.address = address
        self.tls = TlsState(abort)
        return self._sessions.add(self)

    def abandon(self, why: str) -> None:
        """Note that the handshake failed; `why` is empty if this process ended it."""
        self._sessions.remove(self)
        if why:
            self._sessions.handshakes_failed += 1
            self._sessions.deny(self.address, f"TLS: {why}")

    @property
    def in_tls_handshake(self) -> bool:
        """True while the TLS handshake lasts."""
        return self.tls is not None and self._transport is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the device, and send it the command that starts its stream."""
        self._transport = cast("asyncio.Transport", transport)
        if self.tls is None and not self._sessions.add(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._identity = self.address = str(peer[0]).removeprefix("::ffff:") if peer else "unknown"
        if self.tls is not None:
            certificate = transport.get_extra_info("peercert") or {}
            self.tls.names = names_of(certificate)
            if certificate:
                self.tls.expires = expiry(certificate)
        if not self._sessions.admit(self):
            self._transport.abort()
            return
        if (connection := transport.get_extra_info("socket")) is not None:
            _keep_alive(connection)
        if self._origin is None:
            self.command(self._owner.commands.start)

    def connection_lost(self, exc: Exception | None) -> None:
        """Analyse the waiting bytes, then remove the session."""
        if self.queued:
            self._owner.batcher.expedite(self)
            self._owner.batcher.flush()
        self._sessions.remove(self)
        self._close_routes()

    def data_received(self, data: bytes) -> None:
        """Count or relay quiet lines at once; queue everything else for the tick."""
        device = self._device
        if device is None:
            if self._relay_route is None:
                self.reader.receive(data)
            elif self._relay_quiet_lines(data, *self._relay_route):
                return
        elif lines := self.reader.receive(data, device.readings.quiet_line):
            device.arrivals.count_quiet_lines(lines, time.monotonic_ns() + EPOCH_OFFSET_NS)
            return
        waiting, batcher = self.reader.waiting, self._owner.batcher
        batcher.add(self, len(data))
        if waiting > WAITING_LIMIT or (batcher.waiting > TOTAL_LIMIT and waiting > CROWDED_LIMIT):
            self._pause()
        elif waiting <= AHEAD_BYTES and b"!" in data and self._has_urgent_line(data.count(b"!")):
            batcher.expedite(self)

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading if it was paused: the waiting bytes are being analysed."""
        if self._paused and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def command(self, word: str) -> None:
        """Send a bare command, unless the device has left too many unread."""
        transport = self._transport
        if not word or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() < OUTGOING_LIMIT:
            transport.write(word.encode())

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
        elif self.tls is not None:
            self.tls.abort()

    def abort(self) -> None:
        """End the connection at once, without sending what waits."""
        if self._transport is not None:
            self._transport.abort()
        elif self.tls is not None:
            self.tls.abort()


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel detect within about 30 s that a peer is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Linux does not probe while sent data is unacknowledged; without a limit it would retransmit for 15 minutes.
    options = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
    for option, value in options:
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
