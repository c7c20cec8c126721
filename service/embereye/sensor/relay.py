"""A connection from one shard to another: what a device sends to the wrong shard is passed on to its owner."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from embereye.process.tasks import Tasks
from embereye.units import MIB, split_address

logger = logging.getLogger(__name__)
RELAY_LIMIT = MIB  # bytes that may wait for another shard before a device's lines are dropped
DIAL_SECONDS = 3.0  # for the other shard to be reached; a device's lines wait meanwhile, up to RELAY_LIMIT


class Relay(asyncio.Protocol):
    """Dials at once and passes lines on; `pass_back` gets what the other shard sends.

    Lines are buffered up to RELAY_LIMIT, before the connection stands and after; beyond it `send` drops. When the
    connection cannot be made or ends, `closed` is set and what was buffered is lost: its session makes another.
    """

    def __init__(self, address: str, greeting: bytes, pass_back: Callable[[bytes], None], tasks: Tasks) -> None:
        self.closed = False
        self._pass_back = pass_back
        self._transport: asyncio.Transport | None = None
        self._waiting = bytearray(greeting)
        self._dialling = tasks.start(self._dial(address), name=f"relay-{address}")

    async def _dial(self, address: str) -> None:
        try:
            host, port = split_address(address)
            async with asyncio.timeout(DIAL_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except (OSError, ValueError, TimeoutError) as error:
            logger.warning("relay to %s: %s", address, error or "timed out")
            self.closed = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has been waiting."""
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.close()
            return
        self._transport.write(bytes(self._waiting))
        self._waiting.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the session make another when it needs one."""
        self.closed = True

    def data_received(self, data: bytes) -> None:
        """Pass the owner's commands back to the device."""
        self._pass_back(data)

    def send(self, line: bytes) -> bool:
        """Send `line`, or buffer it; False where there is no room and it was dropped."""
        if self._transport is None:
            if len(self._waiting) + len(line) > RELAY_LIMIT:
                return False
            self._waiting += line
            return True
        if self._transport.get_write_buffer_size() > RELAY_LIMIT:
            return False
        self._transport.write(line)
        return True

    def close(self) -> None:
        """Close the connection, or give up making it; what is buffered for the other shard is still sent."""
        self.closed = True
        self._dialling.cancel()
        if self._transport is not None:
            self._transport.close()
