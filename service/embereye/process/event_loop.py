"""The event loop of every process: uvloop, without its second `close` of a descriptor.

libuv closes the descriptors of transports. For a transport made from a Python socket, uvloop makes that socket forget
its descriptor when the transport closes. But it notes the socket only after the transport's first events. If the
transport is closed by then, the freed socket closes the descriptor once more. The number may belong to another
connection or file by then, which loses its descriptor. If libuv still waits for it, libuv aborts the process.
"""

import socket
from typing import Any

import uvloop


class EventLoop(uvloop.Loop):
    """uvloop's loop. A socket passed as `sock` belongs to its transport from then on, also if the call fails."""

    async def create_connection(self, *arguments: Any, sock: socket.socket | None = None, **options: Any) -> Any:
        """Connect as uvloop does; see asyncio."""
        try:
            return await super().create_connection(*arguments, sock=sock, **options)
        finally:
            if sock is not None:
                sock.detach()

    async def create_unix_connection(self, *arguments: Any, sock: socket.socket | None = None, **options: Any) -> Any:
        """Connect as uvloop does; see asyncio."""
        try:
            return await super().create_unix_connection(*arguments, sock=sock, **options)
        finally:
            if sock is not None:
                sock.detach()
