"""UDP sockets for cameras: opened with room for a burst, emptied in strides, many packets at a time."""

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable

from embereye.camera.sources.declared import SourceError

WANTED_BUFFER = 4 * 1024 * 1024  # bytes: half a second of 1080p30; a single picture of it is 300 KB at line rate
ROOMY_BUFFER = 1024 * 1024  # bytes with which a socket can be left alone for REST_SECONDS
REST_SECONDS = 0.002  # from emptying a socket to looking again: a picture's packets come close together
READS = 256  # from one socket before others have their turn
SINGLES = 2_048  # reads that give one datagram each after which no joined ones are expected
DATAGRAM = 65_536  # bytes, the largest, and the largest that the kernel joins
_UDP_GRO = 104  # linux/udp.h: the kernel hands over packets of one size joined, and says their size
_SO_MEMINFO, _DROPS = 55, 8  # linux/sock_diag.h: SK_MEMINFO_DROPS
_ANCILLARY = socket.CMSG_SPACE(4)
_SEGMENT = struct.Struct("=i")

Take = Callable[[memoryview, int], None]  # one datagram, and when it was read: monotonic nanoseconds


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
    """Empties `receiver` into `take` on the event loop while entered.

    A socket that was just emptied is looked at again after REST_SECONDS instead of being waited for: a wake-up for
    every packet would cost more than the packets.
    """

    def __init__(self, receiver: socket.socket, take: Take) -> None:
        self.socket = receiver
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(DATAGRAM)  # pages that no datagram reaches are never touched
        self._view = memoryview(self._buffer)
        self._joined = True  # the kernel may hand over several datagrams at once
        self._singles = 0  # reads in a row that gave one datagram each
        self._rests = granted_buffer(receiver) >= ROOMY_BUFFER
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Datagrams":
        self._loop.add_reader(self.socket, self._readable)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self.socket)
        if self._timer:
            self._timer.cancel()
        self.socket.close()

    def _readable(self) -> None:
        self._read()
        if self._rests:
            self._loop.remove_reader(self.socket)
            self._timer = self._loop.call_later(REST_SECONDS, self._look)

    def _look(self) -> None:
        if self._read():
            self._timer = self._loop.call_later(REST_SECONDS, self._look)
        else:
            self._timer = None
            self._loop.add_reader(self.socket, self._readable)

    def _read(self) -> int:
        """Take what waits; returns how many reads gave something."""
        if self._singles >= SINGLES:
            if self._joined:
                self._joined = False
                with contextlib.suppress(OSError):
                    self.socket.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 0)
            return self._read_singly()
        receive, buffers, view, take = self.socket.recvmsg_into, (self._buffer,), self._view, self._take
        now = time.monotonic_ns()
        for count in range(READS):
            try:
                size, ancillary, _, _ = receive(buffers, _ANCILLARY)
            except BlockingIOError:
                return count
            except OSError:  # an ICMP message about something sent earlier
                continue
            if not ancillary:
                self._singles += 1
                take(view[:size], now)
                continue
            self._singles = 0
            step = max(1, _SEGMENT.unpack(ancillary[0][2])[0])
            for start in range(0, size, step):
                take(view[start : min(size, start + step)], now)
        return READS

    def _read_singly(self) -> int:
        """The same where the kernel has nothing to join: a simpler call costs half as much."""
        receive, buffer, view, take = self.socket.recv_into, self._buffer, self._view, self._take
        now = time.monotonic_ns()
        for count in range(READS):
            try:
                take(view[: receive(buffer)], now)
            except BlockingIOError:
                return count
            except OSError:
                continue
        return READS
