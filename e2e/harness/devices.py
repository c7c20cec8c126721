"""Devices outside the cluster: text sensors over TCP and cameras that push, each with a tiny client.

A device's `run` sends until it is cancelled, and redials whenever its connection breaks or nothing is answered; cameras
follow redirections. Tests change a device while it runs, for example to set it on fire or to freeze its picture.
Starting a fire returns the time at which its first line or frame was written, from which delays are measured.
"""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import cv2
import grpc
import numpy as np

from embereye.process.http.bearer import bearer
from embereye.sim.scenes.scene import Loops, render
from embereye.v1.frames_pb2 import PushRequest, PushResponse
from embereye.v1.frames_pb2_grpc import FramesStub
from harness.calls import cancel_and_wait
from harness.records.diary import Diary
from harness.records.witness import OPTIONS

RETRY_SECONDS = 0.2
REST: Mapping[str, int] = {"ADC1": 280, "ADC2": 1300, "ADC3": 400}
FLOOD_SECONDS = 0.02  # between two bursts of a flooding device
UNANSWERED_SECONDS = 3.0  # silence after which a pushing camera redials; a shard answers several times a second
UNANSWERED_MS = 1500  # unacknowledged data after which the kernel closes a connection
BLOCKED_MS = 10_000  # the same of a flooding device, whose data a shard may leave waiting for seconds


def fire_id(number: int) -> str:
    """The id of the sensor that burns in zone `number`."""
    return f"fire-{number:04}"


@dataclass
class TextDevice:
    """A text sensor: sends readings over one TCP connection and redials when it breaks."""

    id: str
    zone: str
    host: str
    port: int
    period: float = 0.5  # seconds between readings
    values: dict[str, int] = field(default_factory=lambda: dict(REST))
    connections: int = 0
    silent: bool = False  # stays connected and sends nothing
    _lines: int = 0
    _writer: asyncio.StreamWriter | None = None
    _connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            try:
                async with asyncio.timeout(2):
                    reader, writer = await asyncio.open_connection(self.host, self.port)
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            handle = writer.get_extra_info("socket")
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._writer = writer
            writer.write(f"#serialno:{self.id}!\r\n".encode())
            self._connected.set()
            closed = asyncio.ensure_future(_end_of(reader))
            try:
                while not closed.done() and not writer.is_closing():
                    self._send()
                    await asyncio.wait({closed}, timeout=self.period)
            finally:
                self._connected.clear()
                self._writer = None
                closed.cancel()
                writer.transport.abort()
            await asyncio.sleep(RETRY_SECONDS)

    async def fire(self, **values: int) -> int:
        """Send `values` from now on. Returns when the first line was written, in ns of the wall clock."""
        self.values = {**REST, **values}
        await self._connected.wait()
        started_ns = time.time_ns()
        self._send()
        return started_ns

    def rest(self) -> None:
        """Send quiet values from now on."""
        self.values = dict(REST)

    def _send(self) -> None:
        if self._writer and not self.silent:
            self._lines += 1
            noise = self._lines % 2  # a sensor whose values never change for half an hour counts as broken
            values = ",".join(f"{key}={value + noise}" for key, value in self.values.items())
            self._writer.write(f"#Sensor{self.id}:{values}!\r\n".encode())


@dataclass
class FloodingDevice:
    """A text sensor that sends `rate` readings a second, or as many as the shard accepts. Redials when it breaks."""

    id: str
    zone: str
    host: str
    port: int
    rate: float = 5.0

    async def run(self) -> None:
        """Send until cancelled."""
        lines = itertools.cycle([self._line(0), self._line(1)])  # a sensor that never changes is reported as stuck
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(2):
                    _, writer = await asyncio.open_connection(self.host, self.port)
                # Without it, a connection to a node that is powered off stays for a quarter of an hour.
                handle = writer.get_extra_info("socket")
                handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, BLOCKED_MS)
                try:
                    writer.write(f"#serialno:{self.id}!\r\n".encode())
                    await self._send(writer, lines)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(RETRY_SECONDS)

    def _line(self, more: int) -> bytes:
        values = ",".join(f"{key}={value + more}" for key, value in REST.items())
        return f"#Sensor{self.id}:{values}!\r\n".encode()

    async def _send(self, writer: asyncio.StreamWriter, lines: Iterator[bytes]) -> None:
        due, last = 0.0, time.monotonic()
        while not writer.is_closing():
            now = time.monotonic()
            due, last = min(due + (now - last) * self.rate, self.rate), now
            if due >= 1:
                writer.write(next(lines) * int(due))
                due -= int(due)
            await writer.drain()
            await asyncio.sleep(FLOOD_SECONDS)


async def _end_of(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(4096):
            pass


@dataclass(frozen=True)
class Film:
    """The JPEG frames of a scene, shown at `rate` frames a second."""

    rate: float
    quiet: Sequence[bytes]
    growth: Sequence[bytes]
    blaze: Sequence[bytes]
    covered: bytes  # the picture with the lens covered

    @classmethod
    def of(cls, loops: Loops, rate: float = 10.0) -> "Film":
        """Encode all frames now, so that none is encoded while it is shown."""
        quiet = list(loops.quiet)
        picture = cv2.imdecode(np.frombuffer(quiet[0], np.uint8), cv2.IMREAD_GRAYSCALE)
        assert picture is not None
        height, width = picture.shape
        black = cv2.imencode(".jpg", np.full((height, width), 6, np.uint8))[1].tobytes()
        return cls(rate, quiet, list(loops.growth), list(loops.blaze), black)

    @classmethod
    def drawn(cls) -> "Film":
        """Draw a room of 320x240 pixels, which takes seconds of CPU time."""
        return cls.of(render(320, 240, 7, 10.0))


@dataclass
class PushCamera:
    """A camera that pushes a film's frames over gRPC. Its room burns after `ignite`."""

    id: str
    zone: str
    home: str
    film: Film
    diary: Diary
    analysed: int = 0
    frozen: bool = False  # sends the same picture again and again
    covered: bool = False  # something covers the lens
    silent: bool = False  # stays connected and sends nothing
    speed: float = 1.0  # factor on the film's frame rate
    token: str = ""  # the token it authenticates with; a change redials; empty: none
    flame_ns: int = 0  # when the first frame with a flame was written; 0: none yet
    _burning: int = -1  # frames of flame shown
    _heard: float = 0.0  # monotonic seconds of the shard's last answer
    _written: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Push until cancelled."""
        target = self.home
        while True:
            target = await self._push(target) or self.home
            await asyncio.sleep(RETRY_SECONDS)

    async def ignite(self) -> int:
        """Start the fire. Returns when the first frame with a flame was written, in ns of the wall clock."""
        self._burning = 0
        await self._written.wait()
        return self.flame_ns

    def extinguish(self) -> None:
        """Show the quiet room again."""
        self._burning = -1

    async def _push(self, target: str) -> str:
        link = grpc.aio.insecure_channel(target, options=OPTIONS)
        call = FramesStub(link).Push(metadata=bearer(self.token))
        self._heard = time.monotonic()
        sending = asyncio.ensure_future(self._send(call, self.token))
        try:
            async for response in call:
                self._heard = time.monotonic()
                if response.HasField("drain"):
                    return response.drain.target
                if response.HasField("rejected"):
                    self.diary.note(self.id, f"rejected: {response.rejected.reason}", "bad")
                else:
                    self.analysed = response.ack.analysed
        except grpc.aio.AioRpcError as error:
            self.diary.note_change(self.id, f"{target}: {error.code().name}: {error.details()}")
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # the camera is cancelled, not the call
                raise
        finally:
            await cancel_and_wait(sending)
            call.cancel()
            await link.close()
        return ""

    async def _send(self, call: "grpc.aio.StreamStreamCall[PushRequest, PushResponse]", shown: str) -> None:
        due, sequence = time.monotonic(), 0
        while True:
            due = max(due + 1 / (self.film.rate * self.speed), time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self.silent:
                self._heard = time.monotonic()
                continue
            sequence += 1
            image, now_ns = self._frame(sequence), time.time_ns()
            frame = PushRequest(camera=self.id, sequence=sequence, time_ns=now_ns, image=image)
            # A write waits while the server does not read.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNANSWERED_SECONDS):
                    await call.write(frame)
            unanswered = time.monotonic() - self._heard > UNANSWERED_SECONDS
            if unanswered or self.token != shown:
                why = "no answer" if unanswered else "the token changed"
                self.diary.note_change(self.id, f"{why}: redialling")
                call.cancel()
                return

    def _frame(self, sequence: int) -> bytes:
        if self.covered:
            return self.film.covered
        if self.frozen:
            return self.film.quiet[0]
        if self._burning < 0:
            return self.film.quiet[sequence % len(self.film.quiet)]
        shown, self._burning = self._burning, self._burning + 1
        if not self.flame_ns:
            self.flame_ns = time.time_ns()
            self._written.set()
        if shown < len(self.film.growth):
            return self.film.growth[shown]
        return self.film.blaze[(shown - len(self.film.growth)) % len(self.film.blaze)]
