"""UDP sockets for cameras, with buffers for bursts, read many packets at a time.

`RtpSource` and `RtspSession` enter a `DatagramReader` per socket, which passes packets to a `PacketReceiver`. The
kernel joins packets of one size, and the reader collects them in the poller's buffer before it passes them on. A socket
with a large buffer waits for the `SocketPoller`; one with a small buffer is read at once. A read ends when the socket
is empty, a picture is complete, or its time is over. A timer expires pictures whose packets are missing.
"""

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
from embereye.camera.sources.poller import DATAGRAM, SocketPoller
from embereye.camera.sources.source import BURST_SECONDS, read_pause

logger = logging.getLogger(__name__)

WANTED_BUFFER = 4 * 1024 * 1024  # bytes: half a second of 1080p30; a single picture of it is 300 KB at line rate
ROOMY_BUFFER = 1024 * 1024  # bytes with which a socket can stay unread for poller.POLL_SECONDS
OVERDUE_SECONDS = 0.05  # between two checks of a picture with missing packets
READS = 256  # from one socket before the other sockets have their turn
_UDP_GRO = 104  # linux/udp.h: the kernel joins packets of one size and reports that size
_CONTROL = socket.CMSG_SPACE(4)
_SEGMENT = struct.Struct("=i")
_SO_MEMINFO, _DROPS = 55, 8  # linux/sock_diag.h: SK_MEMINFO_DROPS


class PacketReceiver(Protocol):
    """A receiver of one socket's datagrams."""

    @property
    def has_pending(self) -> bool:
        """True if a picture is arriving."""

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Receive joined datagrams of `size` bytes each; the last one may be shorter.

        `now_ns` is the monotonic time of reading. The memory of `packets` is reused after the call. Returns True if a
        picture is complete, so that no more is expected at once.
        """

    def expire_pictures(self) -> None:
        """Give up overdue pictures. Called regularly while `has_pending` is True."""


def open_port(address: str, port: int, interface: str = "") -> socket.socket:
    """Open a bound, non-blocking UDP socket and join a multicast `address`. Raises SourceError on failure."""
    ip = ipaddress.ip_address(address) if address else None
    family = socket.AF_INET6 if ip is None or ip.version == 6 else socket.AF_INET
    group = ip is not None and ip.is_multicast
    try:
        receiver = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    except OSError:
        if ip is not None:
            raise
        family, receiver = socket.AF_INET, socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if family == socket.AF_INET6:
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, ip is not None)
        if group:  # several listeners may join a group
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WANTED_BUFFER)
        with contextlib.suppress(OSError):  # an older kernel delivers each packet separately
            receiver.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        receiver.bind((address, port))
        if group and ip is not None:
            _join(receiver, ip, interface)
    except OSError as error:
        receiver.close()
        raise SourceError(_cannot(address, port, error)) from error
    return receiver


def _cannot(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port}: in use by another camera or program. Give this camera another port"
    endpoint = f"{address} port {port}" if address else f"port {port}"
    return f"{endpoint}: cannot listen: {os.strerror(error.errno) if error.errno else error}"


def _join(receiver: socket.socket, group: ipaddress.IPv4Address | ipaddress.IPv6Address, interface: str) -> None:
    if group.version == 4:
        interface_bytes = ipaddress.IPv4Address(interface or "0.0.0.0").packed
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group.packed + interface_bytes)
        return
    # IPv6 identifies interfaces by number; a group's scope ("ff15::1%eth0") names it.
    scope = getattr(group, "scope_id", None)
    index = socket.if_nametoindex(scope) if scope else 0
    receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group.packed + struct.pack("=I", index))


def granted_buffer(receiver: socket.socket) -> int:
    """Bytes of buffer that the kernel granted to `receiver`, without its bookkeeping."""
    return receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def dropped(receiver: socket.socket) -> int:
    """Number of datagrams that the kernel dropped because the socket's buffer was full."""
    try:
        return int(struct.unpack("=9I", receiver.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))[_DROPS])
    except (OSError, struct.error):
        return 0


class DatagramReader:
    """Reads `receiver` into `packets` on the event loop while entered, together with the poller's other sockets."""

    def __init__(
        self, receiver: socket.socket, packets: PacketReceiver, poller: SocketPoller, sender: str = ""
    ) -> None:
        """Create a reader. `sender`: only accepted address, with the first port that it uses; "": any."""
        self._socket = receiver
        self._descriptor = receiver.fileno()
        self._port: int = receiver.getsockname()[1]
        self._packets = packets
        self._poller = poller
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._polled = granted_buffer(receiver) >= ROOMY_BUFFER
        self._overdue: asyncio.TimerHandle | None = None
        self._paused: asyncio.TimerHandle | None = None  # set while the socket is left unread

    def __enter__(self) -> "DatagramReader":
        self._start()
        return self

    def _start(self) -> None:
        self._paused = None
        if self._polled:
            self._poller.add(self._descriptor, self._read)
        else:
            self._loop.add_reader(self._descriptor, self._read)

    def _stop(self) -> None:
        if self._polled:
            self._poller.remove(self._descriptor)
        else:
            self._loop.remove_reader(self._descriptor)

    def __exit__(self, *_: object) -> None:
        if self._paused:
            self._paused.cancel()
        else:
            self._stop()
        if self._overdue:
            self._overdue.cancel()
        self._socket.close()

    def _read(self) -> bool:
        """Read pending data as time allows. Returns True if a picture is arriving."""
        began = time.thread_time()
        try:
            self._empty(began)
        except Exception:  # an error of this camera must not stop the others
            logger.exception("port %d: its packets could not be used", self._port)
        pending = self._packets.has_pending
        if self._overdue and not pending:
            self._overdue.cancel()
            self._overdue = None
        elif pending and self._overdue is None:
            self._overdue = self._loop.call_later(OVERDUE_SECONDS, self._expire)
        if pause := read_pause(time.thread_time() - began):
            self._stop()
            self._paused = self._loop.call_later(pause, self._start)
        return pending

    def _is_expected_sender(self, sender: tuple[str, int]) -> bool:
        if sender[0] != self._sender:
            return False
        self._sender = ""
        with contextlib.suppress(OSError):
            self._socket.connect(sender)  # the kernel filters other senders from now on
        return True

    def _expire(self) -> None:
        self._overdue = None
        if self._paused:  # the missing packets may wait in the socket
            self._overdue = self._loop.call_later(OVERDUE_SECONDS, self._expire)
            return
        self._read()  # the missing packets may have arrived
        self._packets.expire_pictures()

    def _empty(self, began: float) -> None:
        buffer, receive = self._poller.buffer, self._packets.receive_packets
        most = len(buffer) - DATAGRAM
        now = time.monotonic_ns()
        filled = size = 0  # bytes read and not passed on, and bytes of each datagram
        for _ in range(READS):
            try:
                more, control, _, sender = self._socket.recvmsg_into([buffer[filled:]], _CONTROL)
            except BlockingIOError:
                break
            except OSError:  # an ICMP message about something sent earlier
                continue
            if not more or (self._sender and not self._is_expected_sender(sender)):
                continue
            step = max(1, _SEGMENT.unpack(control[0][2])[0]) if control else more  # UDP_GRO's
            if filled and (step > size or (step < size and step < more)):
                receive(buffer[:filled], size, now)
                receive(buffer[filled : filled + more], step, now)
                filled = 0
                if time.thread_time() - began > BURST_SECONDS:
                    break
                continue
            size = size if filled else step
            filled += more
            if filled % size or filled > most:  # a shorter one is the last
                complete = receive(buffer[:filled], size, now)
                filled = 0
                if complete or time.thread_time() - began > BURST_SECONDS:
                    break
        if filled:
            receive(buffer[:filled], size, now)
