"""Reading of pictures from a response's body, directly from the socket if possible.

`offer_pictures` parses the body and offers each whole picture. A plain body is read by the `SocketPoller` together with
other cameras' sockets. An encrypted, chunked or counted one is read through aiohttp, which costs more. After a read
that takes long, the connection is left unread for a while, so that a flood leaves time to others. A stream without a
whole picture for `stall` seconds ends.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator

import aiohttp

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.source import Offer, SetState, read_pause
from embereye.process.timing.silence import SilenceTimeout
from embereye.wire.http.multipart import MAX_STEPS, MultipartParser


async def offer_pictures(
    response: aiohttp.ClientResponse, offer: Offer, set_state: SetState, poller: SocketPoller, *, stall: float
) -> None:
    """Offer the pictures of `response` until its body ends.

    Raises SourceError if no picture arrives for `stall` seconds or the body is no MJPEG. If it is cancelled, the caller
    closes the connection.
    """
    parser = MultipartParser(response.headers.get("Content-Type", ""))
    set_state("connected, no picture yet")
    try:
        # A server that sends bytes but never completes a picture counts as silent.
        async with SilenceTimeout(stall) as silence:
            pictures = _Pictures(parser, offer, set_state, silence)
            with _raw_body(response, pictures, poller) as ended:
                if ended is None:
                    await _read_body(response, pictures)
                else:
                    await asyncio.wait([ended])
                    await ended
    except TimeoutError as error:
        raise SourceError(f"no picture for {stall:g} s") from error


class _Pictures:
    """Parses the body of a response and offers its pictures; each ends `silence`."""

    def __init__(self, parser: MultipartParser, offer: Offer, set_state: SetState, silence: SilenceTimeout) -> None:
        self._parser = parser
        self._offer = offer
        self._set_state = set_state
        self._silence = silence
        self._streaming = False

    def feed(self, data: bytes | memoryview) -> float:
        """Parse a piece of the body. Returns the seconds for which to leave the connection unread."""
        began = time.thread_time()
        parts = self._parser.feed(data)
        if self._parser.is_astray:
            raise SourceError(f"not MJPEG: no picture within {MAX_STEPS} lines")
        if parts:
            self._silence.renew()
        if parts and not self._streaming:
            self._streaming = True
            self._set_state("streaming")
        for part in parts:
            self._offer(part)
        return read_pause(time.thread_time() - began)


async def _read_body(response: aiohttp.ClientResponse, pictures: _Pictures) -> None:
    async for chunk in response.content.iter_any():
        if pause := pictures.feed(chunk):
            await asyncio.sleep(pause)


@contextlib.contextmanager
def _raw_body(
    response: aiohttp.ClientResponse, pictures: _Pictures, poller: SocketPoller
) -> Iterator[asyncio.Future[None] | None]:
    """Read a plain body, which is the rest of its connection, directly from the socket.

    The future ends with the body. It is None if the body is encrypted, chunked or counted, and has to be read from
    `response`.

    aiohttp would cost more per picture than everything else here. A comparison with h11: pictures of 65 KB took 20 µs
    without and 30 µs with it in reads of 256 KiB, 28 and 52 µs in reads of 16 KiB.
    """
    transport = response.connection.transport if response.connection else None
    coded = any(name in response.headers for name in ("Transfer-Encoding", "Content-Encoding", "Content-Length"))
    if coded or transport is None or transport.is_closing() or transport.get_extra_info("ssl_object"):
        yield None
        return
    while data := response.content.read_nowait():
        pictures.feed(data)
    transport.pause_reading()
    descriptor: int = transport.get_extra_info("socket").fileno()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    pauses: list[asyncio.TimerHandle] = []  # the current pause, if any

    def resume() -> None:
        pauses.clear()
        poller.add(descriptor, read)

    def read() -> bool:
        if ended.done():
            return False
        try:
            size = os.readv(descriptor, [poller.buffer])
            if not size:
                ended.set_result(None)
            if pause := pictures.feed(poller.buffer[:size]):
                poller.remove(descriptor)
                pauses.append(loop.call_later(pause, resume))
        except BlockingIOError:
            pass
        except OSError as error:
            ended.set_exception(SourceError(f"the connection broke: {error.strerror}"))
        except Exception as error:
            ended.set_exception(error)
        return False

    poller.add(descriptor, read)
    try:
        yield ended
    finally:
        ended.cancel()
        if pauses:
            pauses[0].cancel()
        else:
            poller.remove(descriptor)
