"""Simulate sensors as a load: each client sends packets when they are due, regardless of the server.

Over text, a packet's latency ends when the kernel has accepted its line; over gRPC, when the shard has acknowledged it.
A task beside the sender answers the shard's commands, or reads its acknowledgements. Frames are drawn before the clock
starts. `clients.py` has pace and reconnection.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import grpc

from embereye.process.tasks import beside
from embereye.sim.load.clients import (
    CONNECT_SECONDS,
    STALLED_SECONDS,
    Load,
    Pace,
    check_welcome,
    open_stream,
    run_client,
)
from embereye.sim.load.figures import ClientFigures
from embereye.sim.sensors import CHIPS, Chip, reading
from embereye.units import split_address
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, IngestResponse, Reading, ThermalFrame
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye.wire.device.commands import CALIBRATION, REQUEST, CommandParser
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords, SerialNumber

ACKNOWLEDGED_SECONDS = 5.0  # at the end, to wait for acknowledgements
SPREAD_SECONDS = 1.0  # over which the first connections are opened


@dataclass(frozen=True)
class SensorLoad(Load):
    """The load that sensors send."""

    frames: bool = False  # every second packet is a thermal frame
    grpc: bool = False


class _Packets:
    """The packets of one client: readings and, if requested, thermal frames of an invented chip."""

    def __init__(self, id_: str, index: int, load: SensorLoad) -> None:
        self.chip = chip(load.seed * 1000 + index % CHIPS)
        self._dice = random.Random(f"{load.seed}/{id_}")
        self._frames = load.frames
        self.id = id_

    def is_frame(self, number: int) -> bool:
        return self._frames and number % 2 == 0

    def words(self, number: int) -> bytes:
        return self.chip.frame(0.0, number // 2)

    def line(self, number: int) -> bytes:
        if self.is_frame(number):
            return encode(FrameWords(self.id, self.words(number)))
        return encode(reading(self._dice, 0.0, self.id))

    def message(self, number: int, sequence: int, batch: DeviceBatch) -> None:
        if self.is_frame(number):
            batch.frames.append(ThermalFrame(sequence=sequence, time_ns=time.time_ns(), words=self.words(number)))
            return
        values = reading(self._dice, 0.0)
        batch.readings.append(
            Reading(sequence=sequence, time_ns=time.time_ns(), smoke_adc=values.smoke_adc, flame_adc=values.flame_adc,
                    gas_adc=values.gas_adc, flame_detected=values.flame_detected)
        )  # fmt: skip


@cache
def chip(number: int) -> Chip:
    """Invent a chip, or return it if it exists; its frames are drawn once."""
    return Chip(number)


async def send_sensors(figures: Sequence[ClientFigures], load: SensorLoad) -> None:
    """Run a client for each of `figures` with `load`; return when all have sent everything."""
    for index in range(min(len(figures), CHIPS)):  # drawn before the clock runs
        await asyncio.to_thread(chip(load.seed * 1000 + index).frame, 0.0, 0)
    began, spread = time.monotonic(), min(SPREAD_SECONDS, 1 / load.rate) / max(1, len(figures))
    async with asyncio.TaskGroup() as group:
        for index, figure in enumerate(figures):
            pace = Pace(load.rate, load.packets, began + index * spread)
            speak = partial(
                _speak_grpc if load.grpc else _speak_text, _Packets(figure.id, index, load), figure, pace, load
            )
            group.create_task(run_client(speak, figure, pace, load.seed), name=f"load-{figure.id}")


async def _speak_text(packets: _Packets, figure: ClientFigures, pace: Pace, load: SensorLoad) -> None:
    host, port = split_address(load.target)
    tls = load.tls
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls.context() if tls else None, server_hostname=(tls.server_name or host) if tls else None
        )
    figure.connections += 1
    # Bytes that the kernel has not accepted count as not sent.
    writer.transport.set_write_buffer_limits(high=0)
    writer.write(encode(SerialNumber(packets.id)))
    try:
        async with beside(_answer(reader, writer, packets), name=f"answer-{packets.id}") as answering:
            while not pace.is_over:
                due = await pace.next()
                if answering.done():
                    raise ConnectionResetError("the server closed the connection")
                line = packets.line(pace.number)
                writer.write(line)
                async with asyncio.timeout(STALLED_SECONDS):
                    await writer.drain()
                figure.latencies.add(time.monotonic() - due)
                figure.count_sent(len(line))
    except BaseException:
        writer.transport.abort()  # closing would wait until the server accepts bytes that it does not accept
        raise
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, packets: _Packets) -> None:
    """Answer the server's commands as a device does, until the connection closes."""
    commands = CommandParser()
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            for command in commands.feed(data):
                if command == CALIBRATION:
                    writer.write(encode(Eeprom(packets.id, packets.chip.eeprom)))
                elif command == REQUEST:
                    writer.write(encode(FrameWords(packets.id, packets.words(0))))


async def _speak_grpc(packets: _Packets, figure: ClientFigures, pace: Pace, load: SensorLoad) -> None:
    waiting: deque[tuple[int, float]] = deque()  # of unacknowledged packets: sequence number, due time
    epoch, sequence = time.time_ns(), 0
    async with open_stream(
        load,
        figure,
        lambda link, shown: IngestStub(link).Stream(metadata=shown),
        lambda call: _receive(call, waiting, figure),
    ) as (call, receiving):
        first = DeviceBatch(device=packets.id, epoch=epoch, calibration=packets.chip.eeprom)
        while not pace.is_over and not receiving.done():
            due = await pace.next()
            sequence += 1
            batch = first if sequence == 1 else DeviceBatch(device=packets.id, epoch=epoch)
            packets.message(pace.number, sequence, batch)
            waiting.append((sequence, due))
            request = IngestRequest(devices=[batch])
            async with asyncio.timeout(STALLED_SECONDS):
                await call.write(request)
            figure.count_sent(request.ByteSize())
        deadline = time.monotonic() + ACKNOWLEDGED_SECONDS
        while waiting and not receiving.done() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if waiting:
            figure.errors["not acknowledged"] += len(waiting)


async def _receive(
    call: "grpc.aio.StreamStreamCall[IngestRequest, IngestResponse]",
    waiting: deque[tuple[int, float]],
    figure: ClientFigures,
) -> None:
    """Remove acknowledged packets from `waiting`. ConnectionResetError if the shard sends the client away."""
    async for response in call:
        check_welcome(response)
        if response.HasField("ack"):
            now = time.monotonic()
            upto = max(mark.sequence for mark in response.ack.watermarks)
            while waiting and waiting[0][0] <= upto:
                figure.latencies.add(now - waiting.popleft()[1])
                figure.acknowledged += 1
