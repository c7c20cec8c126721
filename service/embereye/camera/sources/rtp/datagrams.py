"""UDP sockets for cameras: opened with room for a burst, emptied in strides, many packets at a time."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import struct
import time
from typing import Protocol

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.poller import DATAGRAM, Intake

logger = logging.getLogger(__name__)

WANTED_BUFFER = 4 * 1024 * 1024  # bytes: half a second of 1080p30; a single picture of it is 300 KB at line rate
ROOMY_BUFFER = 1024 * 1024  # bytes with which a socket can be left alone for intake.REST_SECONDS
OVERDUE_SECONDS = 0.05  # between looks at a picture that misses packets
READS = 256  # from one socket before others have their turn
_UDP_GRO = 104  # linux/udp.h: the kernel hands over packets of one size joined, and says their size
_CONTROL = socket.CMSG_SPACE(4)
_SEGMENT = struct.Struct("=i")
_SO_MEMINFO, _DROPS = 55, 8  # linux/sock_diag.h: SK_MEMINFO_DROPS


class Taker(Protocol):
    """Takes the datagrams of one socket."""

    @property
    def pending(self) -> bool:
        """Whether a picture is arriving."""
        ...

    def take(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Take datagrams of `size` bytes, the last may have less, one behind the other, read at `now_ns` (monotonic).

        They have to be done with when it returns. True: a picture is complete, more is not expected at once.
        """
        ...

    def poll(self) -> None:
        """Give up what has been waited for long enough; called now and then while it is `pending`."""
        ...


def open_port(address: str, port: int, interface: str = "") -> socket.socket:
    """A bound, non-blocking UDP socket; a multicast `address` is joined. SourceError where it cannot be had."""
    where = ipaddress.ip_address(address) if address else None
    family = socket.AF_INET6 if where is None or where.version == 6 else socket.AF_INET
    group = where is not None and where.is_multicast
    try:
        receiver = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    except OSError:
        if where is not None:
            raise
        family, receiver = socket.AF_INET, socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if family == socket.AF_INET6:
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, where is not None)
        if group:  # any number of listeners may join a group
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WANTED_BUFFER)
        with contextlib.suppress(OSError):  # an older kernel hands over packet by packet
            receiver.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        receiver.bind((address, port))
        if group and where is not None:
            _join(receiver, where, interface)
    except OSError as error:
        receiver.close()
        raise SourceError(_cannot(address, port, error)) from error
    return receiver


def _cannot(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: another camera or program listens there; give this camera another port"
    where = f"{address} port {port}" if address else f"port {port}"
    return f"cannot listen at {where}: {os.strerror(error.errno) if error.errno else error}"


def _join(receiver: socket.socket, group: ipaddress.IPv4Address | ipaddress.IPv6Address, interface: str) -> None:
    if group.version == 4:
        own = ipaddress.IPv4Address(interface or "0.0.0.0").packed
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group.packed + own)
        return
    # IPv6 knows interfaces by number: a group's scope ("ff15::1%eth0") names it.
    scope = getattr(group, "scope_id", None)
    index = socket.if_nametoindex(scope) if scope else 0
    receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group.packed + struct.pack("=I", index))


def granted_buffer(receiver: socket.socket) -> int:
    """Bytes that the kernel keeps for `receiver`, its own bookkeeping not counted."""
    return receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def dropped(receiver: socket.socket) -> int:
    """Datagrams that the kernel has dropped because the socket was full."""
    try:
        return int(struct.unpack("=9I", receiver.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))[_DROPS])
    except (OSError, struct.error):
        return 0


class Datagrams:
    """Empties `receiver` into `taker` on the event loop while entered, together with the others of `intake`."""

    def __init__(self, receiver: socket.socket, taker: Taker, intake: Intake) -> None:
        self._socket = receiver
        self._descriptor = receiver.fileno()
        self._port: int = receiver.getsockname()[1]
        self._taker = taker
        self._intake = intake
        self._loop = asyncio.get_running_loop()
        self._rests = granted_buffer(receiver) >= ROOMY_BUFFER
        self._overdue: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Datagrams":
        if self._rests:
            self._intake.add(self._descriptor, self._read)
        else:
            self._loop.add_reader(self._descriptor, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self._rests:
            self._intake.remove(self._descriptor)
        else:
            self._loop.remove_reader(self._descriptor)
        if self._overdue:
            self._overdue.cancel()
        self._socket.close()

    def _read(self) -> bool:
        """Take what waits; returns whether a picture is arriving."""
        try:
            self._empty()
        except Exception:  # this camera's own, and others wait behind it
            logger.exception("port %d: its packets could not be taken", self._port)
        pending = self._taker.pending
        if self._overdue and not pending:
            self._overdue.cancel()
            self._overdue = None
        elif pending and self._overdue is None:
            self._overdue = self._loop.call_later(OVERDUE_SECONDS, self._poll)
        return pending

    def _poll(self) -> None:
        self._overdue = None
        self._read()  # before anybody concludes that something has not come
        self._taker.poll()

    def _empty(self) -> None:
        room, take = self._intake.room, self._taker.take
        most = len(room) - DATAGRAM
        now = time.monotonic_ns()
        held = size = 0  # bytes that were read and not taken, and of each datagram of them
        for _ in range(READS):
            try:
                more, control, _, _ = self._socket.recvmsg_into([room[held:]], _CONTROL)
            except BlockingIOError:
                break
            except OSError:  # an ICMP message about something sent earlier
                continue
            if not more:
                continue
            step = max(1, _SEGMENT.unpack(control[0][2])[0]) if control else more  # UDP_GRO's
            if held and (step > size or (step < size and step < more)):
                take(room[:held], size, now)
                take(room[held : held + more], step, now)
                held = 0
                continue
            size = size if held else step
            held += more
            if held % size or held > most:  # a shorter one is the last
                complete = take(room[:held], size, now)
                held = 0
                if complete:
                    break
        if held:
            take(room[:held], size, now)
