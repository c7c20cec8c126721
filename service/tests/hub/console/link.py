"""A network between a browser and a hub that tests can cut: data is then lost without notice to either side."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK = 65_536


class Link:
    """A TCP proxy. Connections of before a cut stay open and silent, as at a router that forgot them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = True
        self._refusing = False
        self._cuts = 0
        self._swallowed = b""
        self._slow, self._seconds = b"", 0.0
        self._serving: set[asyncio.Task[None]] = set()
        self.base = ""

    def cut(self) -> None:
        """Drop all data."""
        self._cuts += 1
        self._whole = False

    def refuse(self) -> None:
        """Close every connection, like a machine whose hub was killed."""
        self._refusing = True
        for task in self._serving:
            task.cancel()

    def swallow(self, request: bytes) -> None:
        """Silence connections that send `request` from now on; b"": none."""
        self._swallowed = request

    def delay(self, request: bytes, seconds: float) -> None:
        """Delay the answers to `request` by `seconds` from now on."""
        self._slow, self._seconds = request, seconds

    def mend(self) -> None:
        """Let new connections pass."""
        self._whole, self._refusing = True, False

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the browser."""
        task = asyncio.current_task()
        assert task
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            if not self._refusing:
                await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            await asyncio.Event().wait()
        hub_reader, hub_writer = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.closing(hub_writer):
            upward = asyncio.ensure_future(self._pass(reader, hub_writer, requests=True))
            downward = asyncio.ensure_future(self._pass(hub_reader, writer, requests=False))
            try:
                await asyncio.wait((upward, downward), return_when=asyncio.FIRST_COMPLETED)
            finally:
                upward.cancel()
                downward.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool) -> None:
        cuts = self._cuts
        while data := await reader.read(CHUNK):
            if requests and self._swallowed and self._swallowed in data:
                cuts = -1
            if requests and self._slow and self._slow in data:
                await asyncio.sleep(self._seconds)
            if cuts == self._cuts:
                writer.write(data)
                await writer.drain()
        if cuts != self._cuts:
            await asyncio.Event().wait()  # the end is not passed on either

    async def close(self) -> None:
        """End all connections."""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def linked(base: str) -> AsyncIterator[Link]:
    """Open a link to the server at `base`."""
    link = Link(int(base.rpartition(":")[2]))
    server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
    link.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        server.close()
        await link.close()
