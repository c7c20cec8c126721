import asyncio
import socket
import time

import pytest

from embereye.process.timing import silence as module
from embereye.process.timing.silence import SilenceTimeout


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_SECONDS", 0.2)


async def test_silence_for_too_long_is_a_timeout() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with SilenceTimeout(0.1):
            await asyncio.sleep(10)
    assert 0.09 < time.monotonic() - began < 5


async def test_a_message_restarts_the_timeout() -> None:
    async with SilenceTimeout(0.3) as silence:
        for _ in range(5):
            await asyncio.sleep(0.1)
            silence.renew()


async def test_messages_from_during_a_stall_are_read() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        async with SilenceTimeout(0.1):
            reading = asyncio.ensure_future(reader.read(10))
            await asyncio.sleep(0)
            theirs.send(b"here")
            time.sleep(0.5)  # noqa: ASYNC251 -- the process stalls
            assert await reading == b"here"
        writer.close()


async def test_silence_during_a_stall_is_still_a_timeout() -> None:
    async def stand_still() -> None:
        async with SilenceTimeout(0.1):
            await asyncio.sleep(0)
            time.sleep(0.5)  # noqa: ASYNC251 -- the process stalls
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await stand_still()


async def test_a_loop_that_is_always_late_does_not_extend_the_timeout_forever() -> None:
    async def be_busy() -> None:
        async with SilenceTimeout(0.1):
            for _ in range(8):
                time.sleep(0.4)  # noqa: ASYNC251 -- it has too much to do
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await be_busy()
