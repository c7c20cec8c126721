"""One exchange with a receiver: connect, send a frame, wait for the answer to it.

A connection carries one exchange, which every receiver accepts. Bytes that are no frame, and answers to other
messages, are skipped until the time-out.
"""

import asyncio
import contextlib

from embereye.addons.dc09.frames import CR, LF, MAX_FRAME, Answer, FrameError, parse_answer
from embereye.addons.dc09.options import Receiver
from embereye.process.tasks import raise_if_cancelled

ANSWERS = {"ACK", "NAK", "DUH"}


class NoAnswerError(Exception):
    """The receiver did not answer; the text says why."""


async def exchange(receiver: Receiver, frame: bytes, sequence: int, key: str, timeout: float) -> Answer:
    """Send `frame`, whose sequence is `sequence`, and return the answer; NoAnswerError after `timeout` seconds."""
    garbage = ""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(receiver.host, receiver.port, limit=MAX_FRAME)
            try:
                writer.write(frame)
                await writer.drain()
                while True:
                    answer = await read_frame(reader)
                    try:
                        parsed = parse_answer(answer, key)
                    except FrameError as error:
                        garbage = f"; it sends no valid frame: {error}"
                        continue
                    if parsed.kind in ANSWERS and (parsed.sequence == sequence or parsed.kind == "NAK"):
                        if key and parsed.kind == "ACK" and not parsed.encrypted:
                            garbage = "; it acknowledges an encrypted message in plain text"
                            continue
                        return parsed
                    garbage = f"; it answers {parsed.kind} {parsed.sequence:04d}"
            finally:
                writer.close()
    except TimeoutError:
        raise NoAnswerError(f"no answer within {timeout:g} s{garbage}") from None
    except (EOFError, asyncio.IncompleteReadError):
        raise NoAnswerError(f"it closed the connection{garbage}") from None
    except OSError as error:
        raise NoAnswerError(f"it cannot be reached: {error.strerror or error}") from error
    finally:
        raise_if_cancelled()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read up to the next CR, from the last LF before it. EOFError at the end; too long ones are skipped."""
    while True:
        try:
            data = await reader.readuntil(CR)
        except asyncio.LimitOverrunError as error:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readexactly(max(1, error.consumed))
            continue
        start = data.rfind(LF)
        return data[max(start, 0) :]
