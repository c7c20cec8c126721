"""A connection pooler before a PostgreSQL, which lends its sessions as PgBouncer does.

With `per_transaction`, a client has a session of the server only until its transaction ends (PgBouncer's
`pool_mode=transaction`); otherwise until it disconnects. The session that was returned last is lent first. Clients are
not authenticated. One thread serves each client.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator

import psycopg
from psycopg.pq import ConnStatus, PGconn

LOOPBACK = "127.0.0.1"
ENCRYPTION_REQUESTS = {80877103, 80877104}  # TLS and GSSAPI
PARAMETERS = (
    "server_version", "server_encoding", "client_encoding", "integer_datetimes", "standard_conforming_strings",
    "DateStyle", "TimeZone", "IntervalStyle", "session_authorization", "is_superuser", "application_name",
)  # fmt: skip
FAKE_PID = 7  # PgBouncer, too, sends each client a made-up number


class _Session:
    """A session of the server: libpq signs in, then its socket is used directly."""

    def __init__(self, address: str) -> None:
        self._libpq = PGconn.connect(address.encode())
        assert self._libpq.status == ConnStatus.OK, self._libpq.error_message
        self.socket = socket.socket(fileno=os.dup(self._libpq.socket))
        self.socket.setblocking(True)
        self.parameters = {name: self._libpq.parameter_status(name.encode()) for name in PARAMETERS}


class Pooler:
    """Accepts clients on `port` and forwards them to the PostgreSQL at `address`."""

    def __init__(self, address: str, *, per_transaction: bool) -> None:
        self._address = address
        self._per_transaction = per_transaction
        self._free: list[_Session] = []
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _borrow(self) -> _Session:
        with contextlib.suppress(IndexError):
            return self._free.pop()
        return _Session(self._address)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            while struct.unpack("!I", _read_body(client)[:4])[0] in ENCRYPTION_REQUESTS:
                client.sendall(b"N")
            session = self._borrow()
            client.sendall(_message(b"R", struct.pack("!I", 0)))
            for name, value in session.parameters.items():
                client.sendall(_message(b"S", name.encode() + b"\0" + (value or b"") + b"\0"))
            client.sendall(_message(b"K", struct.pack("!II", FAKE_PID, 1)) + _message(b"Z", b"I"))
            lent: _Session | None = session
            if self._per_transaction:
                self._free.append(session)
                lent = None
            while True:
                kind, body = client.recv(1), b""
                if not kind or kind == b"X":
                    break
                body = _read_body(client)
                lent = lent or self._borrow()
                lent.socket.sendall(_message(kind, body))
                # "Q" and "S" end a group of messages: the server answers each with "Z", ready for the next one.
                if kind in b"QS" and self._forward_answers(lent.socket, client) and self._per_transaction:
                    self._free.append(lent)
                    lent = None

    @staticmethod
    def _forward_answers(server: socket.socket, client: socket.socket) -> bool:
        """Forward the server's answers until it is ready; True if no transaction is open."""
        while True:
            kind, body = server.recv(1), _read_body(server)
            client.sendall(_message(kind, body))
            if kind == b"Z":
                return body == b"I"

    def close(self) -> None:
        """Accept no more clients."""
        self._server.close()


def _read_body(peer: socket.socket) -> bytes:
    length = struct.unpack("!I", _read(peer, 4))[0] - 4
    return _read(peer, length)


def _read(peer: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = peer.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


@contextlib.contextmanager
def pooling(address: str, *, per_transaction: bool) -> Iterator[str]:
    """Run a pooler before the PostgreSQL at `address`; yields the address for its clients."""
    pooler = Pooler(address, per_transaction=per_transaction)
    try:
        yield psycopg.conninfo.make_conninfo(address, host=LOOPBACK, port=pooler.port)
    finally:
        pooler.close()
