"""A video file as a camera, played by a process of its own: a decoder that hangs or crashes can be killed."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from embereye.camera.mailbox import MAX_BYTES
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.player import LENGTH
from embereye.camera.sources.source import Offer, Tell

OPEN_SECONDS = 15.0  # until the first frame: a new interpreter imports OpenCV first
STALL_SECONDS = 10.0  # between frames


class FileSource:
    """Plays `path` over and over at its own frame rate."""

    def __init__(self, path: str, dials: asyncio.Semaphore) -> None:
        self._path = path
        self._dials = dials
        self.process: asyncio.subprocess.Process | None = None

    async def play(self, offer: Offer, tell: Tell) -> None:
        """Run the player until it ends; it is killed when this is cancelled."""
        if not Path(self._path).is_file():
            raise SourceError(f"{self._path} is not a file")
        environment = {**os.environ, "OPENCV_LOG_LEVEL": "OFF", "OPENCV_FFMPEG_LOGLEVEL": "-8"}
        # -P: modules come from where ours come from, never from the working directory.
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "embereye.camera.sources.player", self._path,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            limit=1024 * 1024, env=environment,
        )  # fmt: skip
        self.process = process
        try:
            await self._frames(process, offer, tell)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _frames(self, process: asyncio.subprocess.Process, offer: Offer, tell: Tell) -> None:
        assert process.stdout
        assert process.stderr
        async with self._dials:
            frame = await self._read(process.stdout, OPEN_SECONDS)
        tell("streaming")
        while frame is not None:
            offer(frame)
            frame = await self._read(process.stdout, STALL_SECONDS)
        with contextlib.suppress(TimeoutError):
            said = (await asyncio.wait_for(process.stderr.read(2000), 1.0)).decode(errors="replace").strip()
            code = await asyncio.wait_for(process.wait(), 1.0)
            if code == 2:
                raise SourceError(f"{self._path}: {said.splitlines()[-1] if said else 'the player gave up'}")
            raise SourceError(f"the player of {self._path} ended with code {code}")
        raise SourceError(f"the player of {self._path} closed its output")

    @staticmethod
    async def _read(stream: asyncio.StreamReader, seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(seconds):
                (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
                if length > MAX_BYTES:
                    raise SourceError(f"a frame of {length} bytes, at most {MAX_BYTES}")
                return await stream.readexactly(length)
        except asyncio.IncompleteReadError:
            return None
        except TimeoutError as error:
            raise SourceError(f"no frame within {seconds:g} s") from error
