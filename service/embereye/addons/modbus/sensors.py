"""The source `modbus:` of a sensor shard: reads registers of sensors, panels and PLCs once a second.

Each server (host and port) has one connection, by which its sensors are read one after another, because many servers
answer one request at a time. A reading proves that the sensor lives. In a hand-over, both shards read for a moment.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.addons.modbus.registers import Register, parse_registers
from embereye.process.addresses import server_url
from embereye.process.condition import Condition
from embereye.process.tasks import Tasks, raise_if_cancelled
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.source import Owner, ReadingSource
from embereye.units import bracketed
from embereye.wire.readings.quantity import Report
from embereye.wire.readings.source import parse_source

if TYPE_CHECKING:
    from pymodbus.client import AsyncModbusTcpClient

logger = logging.getLogger(__name__)
SCHEMES = ("modbus",)  # of the sources that this add-on reads
PORTS = {"modbus": 502}
PERIOD_SECONDS = 1.0  # between two readings of a sensor
ANSWER_SECONDS = 2.0  # for one answer
MAX_PAUSE_SECONDS = 10.0  # between two attempts to connect


def open_source() -> ReadingSource:
    """Make the source; ImportError says how to install what it needs."""
    try:
        import pymodbus  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"sensors with source modbus: need pymodbus: pip install 'embereye[modbus]' ({error})"
        ) from error
    return ModbusSensors()


@dataclass(frozen=True)
class Polled:
    """A sensor: its unit at the server, and the places of its quantities."""

    device: str
    unit: int
    registers: Sequence[Register]


class ModbusSensors:
    """Implements `ReadingSource`: one connection for each server."""

    def __init__(self, period: float = PERIOD_SECONDS) -> None:
        self._period = period
        self._owner: Owner
        self._tasks: Tasks
        self._servers: dict[tuple[str, int], tuple[Server, asyncio.Task[None]]] = {}

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin; see `ReadingSource`."""
        self._owner, self._tasks = owner, tasks

    def apply(self, fleet: str, devices: Collection[SensorDevice]) -> None:
        """Read exactly `devices` from now on; see `ReadingSource`."""
        wanted: dict[tuple[str, int], dict[str, Polled]] = {}
        for device in devices:
            spec = device.spec
            try:
                source = parse_source(spec.source)
                _, host, port = server_url("source", source.broker, PORTS)
                polled = Polled(spec.id, _unit(source.topic), parse_registers(source.fields))
            except ValueError as error:
                self._owner.note_link(spec.id, str(error))
                logger.error("device %s: %s", spec.id, error)  # noqa: TRY400 -- the text says all
                continue
            wanted.setdefault((host, port), {})[spec.id] = polled
        for place in [place for place in self._servers if place not in wanted]:
            self._servers.pop(place)[1].cancel()
        for place, sensors in wanted.items():
            if place not in self._servers:
                server = Server(*place, self._owner, self._period)
                self._servers[place] = server, self._tasks.start(server.run(), name="modbus-sensors")
            self._servers[place][0].sensors = sensors

    async def drain(self) -> None:
        """Read nothing more."""
        servers, self._servers = self._servers, {}
        for _, task in servers.values():
            task.cancel()

    def problem(self) -> str:
        """Return why devices cannot be heard; see `ReadingSource`."""
        return "; ".join(server.failing.why for server, _ in self._servers.values() if server.failing)

    def metrics(self) -> Iterable[Metric]:
        """Yield nothing: the shard counts readings."""
        return ()


def _unit(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 255:
        raise ValueError(f'source: unit "{text[:20]}" is not a number from 0 to 255')
    return int(text)


class Server:
    """Reads the `sensors` of one Modbus server. Call `run` until cancelled."""

    def __init__(self, host: str, port: int, owner: Owner, period: float) -> None:
        self.sensors: Mapping[str, Polled] = {}
        self.failing = Condition(logger, begin=logging.ERROR, end=logging.INFO)
        self._host, self._port = host, port
        self._owner = owner
        self._period = period
        self._refusing: dict[str, Condition] = {}  # by device

    @property
    def _place(self) -> str:
        return f"Modbus server {bracketed(self._host)}:{self._port}"

    async def run(self) -> None:
        """Read until cancelled; connect again, less and less often, while the server does not answer."""
        from embereye.addons.modbus.panel import PanelError

        backoff = Backoff(floor=min(0.5, self._period), cap=MAX_PAUSE_SECONDS)
        while True:
            try:
                await self._read_on(backoff)
            except (PanelError, OSError) as error:
                why = f"{self._place}: {error}"
                self.failing.fail(why, "%s; trying again", why)
                for device in self.sensors:
                    self._owner.note_link(device, why)
            raise_if_cancelled()
            await asyncio.sleep(backoff.next())

    async def _read_on(self, backoff: Backoff) -> None:
        """Connect, and read all sensors each period until the connection fails."""
        from embereye.addons.modbus.options import PanelOptions, Table
        from embereye.addons.modbus.panel import connect, connection

        options = PanelOptions(self._host, Table("sensors", ()), port=self._port, timeout=ANSWER_SECONDS)
        client = connection(options)
        try:
            await connect(options, client)
            loop = asyncio.get_running_loop()
            due = loop.time()
            while True:
                for sensor in list(self.sensors.values()):
                    await self._read(client, sensor)
                self.failing.clear("%s: answers again", self._place)
                backoff.reset()
                due = max(due + self._period, loop.time())
                await asyncio.sleep(due - loop.time())
        finally:
            client.close()

    async def _read(self, client: "AsyncModbusTcpClient", sensor: Polled) -> None:
        """Read one sensor; PanelError if the connection fails, not if the server refuses a register."""
        from embereye.addons.modbus.panel import ConnectionLostError, PanelError

        refusing = self._refusing.setdefault(sensor.device, Condition(logger, end=logging.INFO))
        try:
            words = [await _words(client, sensor.unit, register) for register in sensor.registers]
            readings = tuple(map(Register.reading, sensor.registers, words))
        except ConnectionLostError:
            raise
        except (PanelError, ValueError) as error:
            why = f"{self._place}, unit {sensor.unit}: {error}"
            refusing.fail(why, "device %s: %s", sensor.device, why)
            self._owner.refuse(sensor.device, "refused register")
            self._owner.note_link(sensor.device, why)
            return
        if refusing:
            refusing.clear("device %s: can be read again", sensor.device)
        self._owner.note_link(sensor.device, "")
        self._owner.receive(sensor.device, Report(readings), now_ns())


async def _words(client: "AsyncModbusTcpClient", unit: int, register: Register) -> list[int]:
    """Read the words or bits of `register`; PanelError."""
    from embereye.addons.modbus.panel import PanelError, check_answer, translated

    read = {
        "coil": client.read_coils, "discrete": client.read_discrete_inputs,
        "input": client.read_input_registers, "holding": client.read_holding_registers,
    }[register.area]  # fmt: skip
    with translated():
        answer = await read(register.address, count=register.count, device_id=unit)
    check_answer(answer, f"{register.area} {register.address}")
    words = answer.bits if register.area in {"coil", "discrete"} else answer.registers
    if len(words) < register.count:
        raise PanelError(f"{register.area} {register.address}: the answer is too short")
    return list(words[: register.count])
