"""A line from one shard to another: what a device sends to the wrong shard is passed on to its owner."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from embereye.process.tasks import start_task
from embereye.units import split_address

logger = logging.getLogger(__name__)
RELAY_LIMIT = 1 << 20  # bytes that may wait for another shard before a device's lines are dropped


class Relay(asyncio.Protocol):
    """A line to the shard that owns a device which connected here. Bounded; what does not fit is dropped."""

    def __init__(self, address: str, greeting: bytes, words: Callable[[bytes], None]) -> None:
        self.closed = False
        self._words = words
        self._transport: asyncio.Transport | None = None
        self._waiting = bytearray(greeting)
        self._task = start_task(self._dial(address), name=f"relay-{address}")

    async def _dial(self, address: str) -> None:
        try:
            host, port = split_address(address)
            async with asyncio.timeout(3.0):
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
        """Let the session make a new line when it needs one."""
        self.closed = True

    def data_received(self, data: bytes) -> None:
        """Pass the owner's words back to the device."""
        self._words(data)

    def send(self, line: bytes) -> bool:
        """Send `line`; False where it had to be dropped."""
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
        """Close the line."""
        self.closed = True
        self._task.cancel()
        if self._transport is not None:
            self._transport.close()
