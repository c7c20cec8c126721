"""Video files and local cameras, played by separate processes, which are killed if they hang.

`play` starts a player (`player.py`), reads JPEG frames from its standard output and offers them. If the player ends,
its last message or its exit code becomes the SourceError. Silence, an error or cancellation kills it.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from embereye.camera.scheduling.mailbox import MAX_BYTES
from embereye.camera.sources.declared import SourceError, redact
from embereye.camera.sources.source import Offer, SetState
from embereye.camera.sources.video.player import LENGTH
from embereye.process.timing.silence import SilenceTimeout

OPEN_SECONDS = 15.0  # until the first frame: the new interpreter has to import OpenCV
STALL_SECONDS = 10.0  # between frames
READ_AHEAD = 1024 * 1024  # bytes of frames that wait in this process


class VideoSource:
    """Plays the file or the device at `address`, a path."""

    def __init__(self, address: str, starts: asyncio.Semaphore) -> None:
        self._address = address
        self._starts = starts
        self.process: subprocess.Popen[bytes] | None = None

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Run the player until it ends. Cancelling kills it."""
        process = self._start()
        self.process = process
        try:
            await self._frames(process, offer, set_state)
        finally:
            process.kill()
            await asyncio.shield(asyncio.to_thread(process.wait))

    def _start(self) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "OPENCV_LOG_LEVEL": "OFF", "OPENCV_FFMPEG_LOGLEVEL": "-8"}
        # -P: import modules from our paths, never from the working directory.
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        # Popen does not fork. uvloop's subprocesses do, and gRPC's threads would not survive that.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "embereye.camera.sources.video.player", self._address],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip

    async def _frames(self, process: "subprocess.Popen[bytes]", offer: Offer, set_state: SetState) -> None:
        output, transport = await _reader(process.stdout)
        errors, error_transport = await _reader(process.stderr)
        try:
            await self._relay(output, offer, set_state)
            shown = redact(self._address)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    message = (await errors.read(2000)).decode(errors="replace").strip()
                async with asyncio.timeout(2.0):
                    code = await asyncio.to_thread(process.wait, 1.0)
                if code == 2:
                    raise SourceError(f"{shown}: {message.splitlines()[-1] if message else 'the player failed'}")
                raise SourceError(f"{shown}: its player ended with exit code {code}")
            raise SourceError(f"{shown}: its player closed its output")
        finally:
            transport.close()
            error_transport.close()

    async def _relay(self, output: asyncio.StreamReader, offer: Offer, set_state: SetState) -> None:
        async with self._starts:
            frame = await self._read(output, OPEN_SECONDS)
        set_state("streaming")
        while frame is not None:
            offer(frame)
            frame = await self._read(output, STALL_SECONDS)

    @staticmethod
    async def _read(stream: asyncio.StreamReader, seconds: float) -> bytes | None:
        try:
            async with SilenceTimeout(seconds):
                (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
                if length > MAX_BYTES:
                    raise SourceError(f"a frame has {length} bytes, at most {MAX_BYTES} are allowed")
                return await stream.readexactly(length)
        except asyncio.IncompleteReadError:
            return None
        except TimeoutError as error:
            raise SourceError(f"no frame within {seconds:g} s") from error


class FileSource(VideoSource):
    """Plays a file over and over at its frame rate."""

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Run the player until it ends. Cancelling kills it."""
        if not Path(self._address).is_file():
            raise SourceError(f"{redact(self._address)}: not a file")
        await super().play(offer, set_state)


class DeviceSource(VideoSource):
    """Plays a local camera (Video4Linux)."""

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Run the player until it ends. Cancelling kills it."""
        if not Path(self._address).exists():
            raise SourceError(f"{self._address}: no such device. Plug in the camera, and run the shard on its machine")
        if not os.access(self._address, os.R_OK | os.W_OK):
            raise SourceError(f"{self._address}: permission denied. Add the user to the group video")
        await super().play(offer, set_state)


async def _reader(pipe: IO[bytes] | None) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Create a reader of a process's output, and the transport that closes it."""
    assert pipe
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=READ_AHEAD)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport
