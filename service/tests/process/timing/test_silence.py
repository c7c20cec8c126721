import asyncio
import socket
import time

import pytest

from embereye.process.timing import silence as module
from embereye.process.timing.silence import SilenceTimeout


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_SECONDS", 0.2)


async def test_who_waits_for_too_long_gives_up() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with SilenceTimeout(0.1):
            await asyncio.sleep(10)
    assert 0.09 < time.monotonic() - began < 5


async def test_what_comes_begins_it_anew() -> None:
    async with SilenceTimeout(0.3) as silence:
        for _ in range(5):
            await asyncio.sleep(0.1)
            silence.renew()


async def test_what_came_while_the_process_stood_still_is_read() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        async with SilenceTimeout(0.1):
            reading = asyncio.ensure_future(reader.read(10))
            await asyncio.sleep(0)
            theirs.send(b"here")
            time.sleep(0.5)  # noqa: ASYNC251 -- the process stands still
            assert await reading == b"here"
        writer.close()


async def test_where_nothing_came_it_ends_in_time_all_the_same() -> None:
    async def stand_still() -> None:
        async with SilenceTimeout(0.1):
            await asyncio.sleep(0)
            time.sleep(0.5)  # noqa: ASYNC251 -- the process stands still
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await stand_still()


async def test_a_loop_that_is_late_each_time_excuses_nobody_for_ever() -> None:
    async def be_busy() -> None:
        async with SilenceTimeout(0.1):
            for _ in range(8):
                time.sleep(0.4)  # noqa: ASYNC251 -- it has too much to do
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await be_busy()
