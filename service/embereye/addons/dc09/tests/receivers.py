"""A receiver under test: it parses frames with siadc09 itself, and answers by its mood."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from siadc09 import message as messages

from embereye.process.addresses import free_ports


@dataclass
class FakeReceiver:
    """A receiver that acknowledges everything, unless `mood` says otherwise."""

    key: str = ""
    mood: str = "ACK"  # ACK, NAK once its clock differs, DUH, silent, garbage, plain: ACK without encryption
    ahead: timedelta = timedelta()  # of its clock
    port: int = field(default_factory=lambda: free_ports(1)[0])
    frames: list[bytes] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)  # acknowledged messages of siadc09, without polls
    polls: int = 0
    server: asyncio.Server | None = None

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        if self.server:
            self.server.close()
            await self.server.wait_closed()
        self.server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            frame = await reader.readuntil(b"\r")
            self.frames.append(frame)
            if self.mood == "garbage":
                writer.write(b"\x00\xff\nnonsense\r\n\x0a12\r" * 10)
            if answer := self._answer(frame):
                writer.write(answer)
            await writer.drain()
            if self.mood in ("silent", "garbage"):
                await reader.read()
        writer.close()

    def _answer(self, frame: bytes) -> bytes:
        if self.mood in ("silent", "garbage"):
            return b""
        message = messages.parse_frame(frame, bytes.fromhex(self.key) if self.key else None)
        clock = datetime.now(UTC) + self.ahead
        if self.mood == "NAK" and abs(message.timestamp - clock) > timedelta(seconds=20):
            return bytes(messages.NakMessage(message.account, clock).encode())
        if self.mood == "DUH":
            return bytes(messages.DuhMessage(message.account, message.seq).encode())
        if message.idtoken == "NULL":
            self.polls += 1
        else:
            self.events.append(message)
        encrypted = bool(self.key) and self.mood != "plain"
        return bytes(messages.AckMessage(message.account, message.seq, clock if encrypted else None).encode(
            encrypt=encrypted))  # fmt: skip

    @property
    def contents(self) -> list[str]:
        """The data of the acknowledged events, each once per sequence."""
        return list({message.seq: message.data.content.decode() for message in self.events}.values())


@contextlib.asynccontextmanager
async def running_receiver(**options: Any) -> AsyncIterator[FakeReceiver]:
    receiver = FakeReceiver(**options)
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()
