"""`embereye simulate sensors`: devices that connect over TCP and use the real text protocol, fires included.

`run_sensors` starts a task for each device. The task connects, sends the serial number, waits a moment for the start
command, and then sends readings and frames when they are due. It reconnects with a growing pause. Over gRPC all devices
share one `Client` instead. Every value follows from the seed, the time, and the strength of the fires that the device
sees. If the server is too slow, new measurements are dropped, because a late one is useless.
"""

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from embereye.client import Client, SpoolFullError
from embereye.detect.thermal.mlx90640 import COLUMNS, PIXELS, ROWS, Calibration
from embereye.process.tasks import Tasks, first_of
from embereye.process.timing.backoff import Backoff
from embereye.process.tls.client import ClientTls
from embereye.sim.mlx90640 import invent_eeprom, measure
from embereye.sim.scenes.fire import Fire, intensity
from embereye.units import split_address
from embereye.wire.device.commands import CALIBRATION, REQUEST, START, CommandParser
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords, Message, SensorReading, SerialNumber

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
START_SECONDS = 1.0  # after which a device starts without a command
STALLED_SECONDS = 10.0  # after which a server that accepts or acknowledges no bytes is disconnected
FLUSH_SECONDS = 2.0  # at the end, to wait for acknowledgements
IDLE_SECONDS = 0.25  # longest sleep of a device, which bounds when it notices a closed connection
WRITE_LIMIT = 64 * 1024  # bytes waiting to be sent; beyond, new measurements are dropped, because old ones are useless
CHIPS = 32  # different calibrations; device 33 repeats the first
# Frames per chip and strength of the fire, shown in turn, each time with other noise. Inventing every frame would cost
# more than the shard under test spends on it.
FRAMES = 4
NOISE_WORDS = 4096  # start positions in a chip's noise
NOISE_STEP = (
    2_654_435_761  # odd and large, so that the frames of a slow or irregular inspection never share their noise
)
STRENGTHS = 100  # steps from no fire to full strength

ROOM_C = 22.0
NOISE_C = 0.1
FIRE_C = 420.0  # above the room's temperature, at full strength


@dataclass(frozen=True)
class SensorSpec:
    """One simulated device."""

    id: str
    zone: str = ""


@dataclass
class SensorStats:
    """The counts of all simulated devices together."""

    connected: int = 0
    connections: int = 0
    failures: int = 0  # failed attempts to connect
    lost: int = 0  # connections closed by the server
    readings: int = 0
    frames: int = 0
    calibrations: int = 0
    dropped: int = 0  # packets not sent because the server was too slow
    sent_bytes: int = 0  # as text
    acknowledged: int = 0  # readings and frames, over gRPC
    waiting: int = 0  # readings and frames that no shard has acknowledged


class Chip:
    """An invented thermal sensor, and its frames of a room, with or without a fire."""

    def __init__(self, seed: int) -> None:
        eeprom = invent_eeprom(seed)
        self.eeprom = eeprom.astype(">u2").tobytes()
        self._calibration = Calibration.from_eeprom(eeprom)
        self._random = np.random.default_rng(seed)
        self._room = ROOM_C + np.linspace(-1, 1, ROWS)[:, None] + np.linspace(0, 1, COLUMNS)[None, :]
        self._frames: dict[int, list[NDArray[np.uint16]]] = {}  # strength → frames, as big-endian words
        # The two lowest bits of a real chip's pixels are noise: 1 to 2 counts.
        self._noise = self._random.integers(0, 4, NOISE_WORDS + PIXELS).astype(">u2").view(np.uint16)

    def frame(self, strength: float, number: int) -> bytes:
        """The big-endian words of frame `number`, with a fire of `strength` 0..1."""
        step = round(strength * STRENGTHS)
        frames = self._frames.setdefault(step, [])
        if len(frames) < FRAMES:
            frames.append(self._words(self.scene(step / STRENGTHS), len(frames)))
        words = frames[number % len(frames)].copy()
        start = number * NOISE_STEP % NOISE_WORDS
        words[:PIXELS] ^= self._noise[start : start + PIXELS]
        return words.tobytes()

    def scene(self, strength: float) -> NDArray[np.float64]:
        """°C as (24, 32): the room, noise, and a hot spot that is hotter and wider with `strength`."""
        noise = self._random.normal(0, NOISE_C, (ROWS, COLUMNS))
        rows, columns = np.indices((ROWS, COLUMNS))
        distance = (rows - 15) ** 2 + (columns - 18) ** 2
        flicker = 1 + 0.05 * self._random.standard_normal()
        spot = FIRE_C * strength * flicker * np.exp(-distance / (2 * (0.8 + 3 * strength) ** 2))
        return self._room + noise + spot

    def _words(self, scene: NDArray[np.float64], number: int) -> NDArray[np.uint16]:
        frame = measure(self._calibration, scene, ambient=30.0, subpage=number % 2)
        return frame.astype(">u2").view(np.uint16)


def reading(dice: random.Random, strength: float, location: str | None = None) -> SensorReading:
    """Readings of the other sensors with a fire of `strength` 0..1; at 0 they resemble an idle device."""
    return SensorReading(
        location,
        smoke_adc=round(min(max(dice.gauss(283, 4) + 2200 * strength, 0), 4095)),
        flame_adc=round(min(max(dice.gauss(1305, 2) + 2500 * strength, 0), 4095)),
        gas_adc=round(min(max(dice.gauss(400, 5) + 1800 * strength, 0), 4095)),
        flame_detected=strength > 0.2,
    )


@dataclass
class _World:
    """The state that all devices of one simulation share."""

    target: Callable[[str], str]
    rate: float
    frame_rate: float
    seed: int
    fires: tuple[Fire, ...]
    stats: SensorStats
    started: float  # event loop time
    tls: ClientTls | None
    chips: dict[int, Chip] = field(default_factory=dict)

    def chip(self, index: int) -> Chip:
        number = self.seed * 1000 + index % CHIPS
        if number not in self.chips:
            self.chips[number] = Chip(number)
        return self.chips[number]


class _Connection(asyncio.Protocol):
    """A TCP connection of one device; answers commands as they come."""

    def __init__(self, device: "_Device") -> None:
        self._device = device
        self._commands = CommandParser()
        self._transport: asyncio.Transport | None = None
        self._paused_at = 0.0
        self.started = asyncio.Event()
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_LIMIT)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # else a connection to a node that is off lasts for many minutes
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_SECONDS * 1000))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def pause_writing(self) -> None:
        self._paused_at = asyncio.get_running_loop().time()

    def resume_writing(self) -> None:
        self._paused_at = 0.0

    def data_received(self, data: bytes) -> None:
        for command in self._commands.feed(data):
            if command == START:
                self.started.set()
            elif command == CALIBRATION:
                self._device.send_calibration(self)
            elif command == REQUEST:
                self._device.send_frame(self)

    def send(self, message: Message) -> bool:
        """Send the message, or drop it if the server is too slow; True if it was sent."""
        stats = self._device.world.stats
        if self._transport is None or self._transport.is_closing():
            return False
        if self._paused_at:
            stats.dropped += 1
            if asyncio.get_running_loop().time() - self._paused_at > STALLED_SECONDS:
                self._transport.abort()
            return False
        line = encode(message)
        stats.sent_bytes += len(line)
        self._transport.write(line)
        return True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Stream:
    """A device's gRPC stream, through a client that all devices share."""

    def __init__(self, client: Client, device: str, stats: SensorStats) -> None:
        self._client = client
        self._device = device
        self._stats = stats
        self.started = asyncio.Event()
        self.started.set()
        self.closed = asyncio.Event()

    def send(self, message: Message) -> bool:
        """Hand `message` to the client, or drop it if its spool is full; True if it was accepted."""
        try:
            match message:
                case SensorReading():
                    self._client.send(
                        self._device,
                        smoke_adc=message.smoke_adc,
                        flame_adc=message.flame_adc,
                        gas_adc=message.gas_adc,
                        flame_detected=message.flame_detected,
                    )
                case FrameWords(words=words):
                    self._client.send_frame(self._device, words)
                case Eeprom(words=words):
                    self._client.calibrate(self._device, words)
        except SpoolFullError:
            self._stats.dropped += 1
            return False
        return True


class _Device:
    """A simulated device: connects, sends and reconnects until it is cancelled."""

    def __init__(self, spec: SensorSpec, index: int, world: _World) -> None:
        self.spec = spec
        self.world = world
        self._index = index
        self._dice = random.Random(f"{world.seed}/{spec.id}")
        self._frames = self._dice.randrange(1000)

    def _strength(self) -> float:
        elapsed = asyncio.get_running_loop().time() - self.world.started
        return intensity(self.world.fires, self.spec.id, self.spec.zone, elapsed)

    def send_frame(self, connection: "_Connection | _Stream") -> None:
        self._frames += 1
        words = self.world.chip(self._index).frame(self._strength(), self._frames)
        self.world.stats.frames += connection.send(FrameWords(self.spec.id, words))

    def send_calibration(self, connection: "_Connection | _Stream") -> None:
        chip = self.world.chip(self._index)
        self.world.stats.calibrations += connection.send(Eeprom(self.spec.id, chip.eeprom))

    def _send_reading(self, connection: "_Connection | _Stream") -> None:
        self.world.stats.readings += connection.send(reading(self._dice, self._strength(), self.spec.id))

    async def run(self, first_wait: float) -> None:
        backoff = Backoff(jitter=random.Random(f"{self.world.seed}/{self.spec.id}/again"))
        stats = self.world.stats
        await asyncio.sleep(first_wait)
        while True:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError) as error:
                if not backoff.failures:
                    logger.info("%s cannot connect: %s", self.spec.id, error or "timed out")
                stats.failures += 1
            else:
                stats.connections += 1
                stats.connected += 1
                try:
                    if await self._stream(connection):
                        backoff.reset()
                finally:
                    stats.connected -= 1
                    connection.close()
                stats.lost += 1
            await asyncio.sleep(backoff.next())

    async def run_grpc(self, client: Client, first_wait: float) -> None:
        """Send over gRPC until cancelled."""
        await asyncio.sleep(first_wait)
        stream = _Stream(client, self.spec.id, self.world.stats)
        self.world.stats.connections += 1
        self.send_calibration(stream)
        await self._stream(stream)

    async def _connect(self) -> _Connection:
        host, port = split_address(self.world.target(self.spec.id))
        async with asyncio.timeout(CONNECT_SECONDS):
            tls = self.world.tls
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self), host, port,
                ssl=tls.context() if tls else None, server_hostname=(tls.server_name or host) if tls else None,
            )  # fmt: skip
        return connection

    async def _stream(self, connection: "_Connection | _Stream") -> bool:
        """Send until the connection closes. True if it lasted long enough to stream."""
        connection.send(SerialNumber(self.spec.id))
        await first_of(connection.started.wait(), connection.closed.wait(), timeout=START_SECONDS)
        streamed = not connection.closed.is_set()
        now = asyncio.get_running_loop().time
        schedule = [
            _Schedule(rate, now() + self._dice.random() / rate, send)
            for rate, send in ((self.world.rate, self._send_reading), (self.world.frame_rate, self.send_frame))
            if rate > 0
        ]
        while not connection.closed.is_set():
            for part in schedule:
                if part.due(now()):
                    part.send(connection)
            next_due = min((part.at for part in schedule), default=now() + IDLE_SECONDS)
            await asyncio.sleep(min(max(next_due - now(), 0), IDLE_SECONDS))
        return streamed


@dataclass
class _Schedule:
    """A message sent `rate` times a second."""

    rate: float
    at: float  # event loop time of the next message
    send: Callable[[_Connection | _Stream], None]

    def due(self, now: float) -> bool:
        if now < self.at:
            return False
        # Missed readings are not sent later: a delayed device does not send old values.
        self.at = max(self.at + 1 / self.rate, now)
        return True


async def run_sensors(  # noqa: PLR0913 -- a scenario, all by name
    specs: Sequence[SensorSpec],
    target: str | Callable[[str], str],
    stop: asyncio.Event,
    *,
    rate: float = 10.0,
    frame_rate: float = 4.0,
    seed: int = 0,
    fires: Sequence[Fire] = (),
    stats: SensorStats | None = None,
    grpc: bool = False,
    spool: Path | None = None,
    token: str = "",
    tls: ClientTls | None = None,
) -> SensorStats:
    """Simulate `specs` against `target` ("host:port", or a function of the device's id) until `stop` is set.

    Each device sends `rate` readings and `frame_rate` frames a second; 0: none. The times of `fires` start at the call.
    With `grpc`, `target` is a shard's gRPC port for all devices, unacknowledged packets are stored in `spool`, and
    `token` is sent. With `tls`, devices use it for gRPC and for text.
    """
    world = _World(
        target=target if callable(target) else lambda _: target,
        rate=rate,
        frame_rate=frame_rate,
        seed=seed,
        fires=tuple(fires),
        stats=stats if stats is not None else SensorStats(),
        started=asyncio.get_running_loop().time(),
        tls=tls,
    )
    spread = min(1.0, len(specs) / 500)  # seconds over which the first connections are opened
    async with contextlib.AsyncExitStack() as stack:
        client = (
            await stack.enter_async_context(Client(world.target(""), spool=spool, token=token, tls=tls))
            if grpc
            else None
        )
        tasks = await stack.enter_async_context(Tasks())
        for index, spec in enumerate(specs):
            wait = spread * index / max(len(specs), 1)
            device = _Device(spec, index, world)
            life = device.run(wait) if client is None else device.run_grpc(client, wait)
            tasks.start(life, name=f"sensor-{spec.id}")
        await first_of(stop.wait(), tasks.failed.wait())
        if tasks.failed.is_set():
            raise RuntimeError("a simulated sensor failed; its traceback is in the log")
        if client is not None:
            await tasks.stop()
            await client.flush(FLUSH_SECONDS)
            world.stats.acknowledged, world.stats.waiting = client.acknowledged, client.waiting
    return world.stats
