"""A real Modbus server whose registers are sensors: values, alarms, refusals, an outage and a hand-over."""

import pytest
from harness.eventually import eventually
from harness.source_shard import SourceShard
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from embereye.addons.modbus.registers import parse_register
from embereye.addons.modbus.sensors import ModbusSensors
from embereye.levels import Kind, Level
from embereye.process.addresses import free_ports
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source

FIELDS = {"smoke": "discrete:1", "temperature": "input:2:int16:0.1", "fault": "holding:5:uint16=2|3"}


class Plant:
    """A Modbus server whose units 1 and 2 have 16 bits and 16 registers each."""

    def __init__(self):
        (self.port,) = free_ports(1)
        self.bits, self.words = [False] * 16, [0] * 16

    async def _answer(self, code, _, address, count, __, ___):
        return None

    async def start(self):
        def blocks():
            bits = [SimData(0, values=list(self.bits), datatype=DataType.BITS)]
            words = [SimData(0, values=list(self.words), datatype=DataType.REGISTERS)]
            return bits, list(bits), words, list(words)

        devices = [SimDevice(unit, simdata=blocks()) for unit in (1, 2)]
        self.server = ModbusTcpServer(devices, address=("127.0.0.1", self.port))
        await self.server.serve_forever(background=True)

    async def stop(self):
        await self.server.shutdown()

    async def set(self, *, bits=None, words=None):
        """Restart with these values, as a PLC does that is switched off and on."""
        await self.stop()
        for address, value in (bits or {}).items():
            self.bits[address] = value
        for address, value in (words or {}).items():
            self.words[address] = value
        await self.start()


@pytest.fixture
async def plant():
    served = Plant()
    served.words[2] = 215
    await served.start()
    yield served
    await served.stop()


class Shard(SourceShard):
    """A shard with the units of one slave."""

    def __init__(self, port, **units):
        address = f"modbus://127.0.0.1:{port}"
        specs = [
            Device(id=device, zone="hall", source=encode_source(SensorSource(address, str(unit), "plain", fields, 0)))
            for device, (unit, fields) in units.items()
        ]
        super().__init__(ModbusSensors(period=0.02), *specs)
        self.apply()


@pytest.fixture
async def shard():
    made = []

    def make(port, **units):
        made.append(Shard(port, **units))
        return made[-1]

    yield make
    for each in made:
        await each.stop()


async def test_registers_are_read_with_their_type_and_scale(plant, shard):
    watched = shard(plant.port, kiln=(1, FIELDS), oven=(2, {"temperature": "holding:2:uint16:0.1:-1"}))
    await eventually(lambda: watched.reports("kiln") and watched.reports("oven"))
    assert watched.reports("kiln")[0] == {"smoke": 0.0, "temperature": pytest.approx(21.5), "fault": 0.0}
    assert watched.reports("oven")[0] == {"temperature": pytest.approx(20.5)}
    await eventually(lambda: not watched.reason("kiln"))


async def test_a_bit_that_is_set_is_an_alarm_and_a_fault_code_darkens(plant, shard):
    watched = shard(plant.port, kiln=(1, FIELDS))
    await eventually(lambda: watched.reports("kiln"))
    await plant.set(bits={1: True})
    await eventually(lambda: [sign for sign in watched.signs if sign.level == Level.ALARM])
    assert watched.signs[-1].kind == Kind.SMOKE
    await plant.set(bits={1: False}, words={5: 3})
    await eventually(lambda: watched.reports("kiln")[-1]["fault"])
    assert watched.reason("kiln")


async def test_a_server_that_is_off_darkens_its_sensors_and_returns(plant, shard):
    watched = shard(plant.port, kiln=(1, FIELDS))
    await eventually(lambda: watched.reports("kiln"))
    await plant.stop()
    await eventually(watched.source.problem)
    assert "Modbus server 127.0.0.1" in watched.reason("kiln", 6 * SECOND)
    seen = len(watched.reports("kiln"))
    await plant.start()
    await eventually(lambda: len(watched.reports("kiln")) > seen)
    assert not watched.source.problem()


async def test_a_register_that_does_not_exist_is_the_problem_of_its_sensor_alone(plant, shard):
    watched = shard(plant.port, kiln=(1, FIELDS), wrong=(2, {"smoke": "coil:999"}))
    await eventually(lambda: watched.devices["wrong"].arrivals.ledger.rejected["refused register"])
    await eventually(lambda: len(watched.reports("kiln")) > 2)
    assert "unit 2: coil 999: it has no such address" in watched.reason("wrong", 6 * SECOND)
    assert not watched.reports("wrong")


async def test_wrong_fields_are_named_and_other_sensors_are_read(plant, shard):
    watched = shard(plant.port, kiln=(1, FIELDS), wrong=(1, {"smoke": "relay:1"}))
    await eventually(lambda: watched.reports("kiln"))
    assert 'fields.smoke: "relay:1" is not of the form AREA:ADDRESS' in watched.reason("wrong", 6 * SECOND)


@pytest.mark.parametrize(
    ("text", "words", "value"),
    [
        ("input:0", [65535], 65535),
        ("input:0:int16", [65535], -1),
        ("input:0:int16:0.1:-5", [100], 5),
        ("input:0:uint32", [1, 2], 65538),
        ("input:0:uint32le", [2, 1], 65538),
        ("input:0:float32", [0x41AC, 0x0000], 21.5),
        ("input:0:float32le", [0x0000, 0x41AC], 21.5),
    ],
)
def test_words_become_the_value_of_their_type(text, words, value):
    register = parse_register("temperature", text)
    assert register.count == len(words)
    assert register.reading(words).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "words", "value"),
    [("coil:0", [1], 1), ("holding:0:bit3", [8], 1), ("holding:0:bit3", [7], 0), ("holding:0=2|3", [3], 1),
     ("holding:0=2|3", [1], 0), ("holding:0:int16=-1", [65535], 1)],
)  # fmt: skip
def test_words_become_on_or_off(text, words, value):
    assert parse_register("smoke", text).reading(words).value == value


@pytest.mark.parametrize("text", ["", "coil", "coil:70000", "coil:1:int16", "input:1:int64", "input:1:int16:x", "9:1"])
def test_a_wrong_place_is_refused_with_its_form(text):
    with pytest.raises(ValueError, match=r"fields\.smoke"):
        parse_register("smoke", text)


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="word order"):
        parse_register("temperature", "input:0:float32").reading([0x7FC0, 0])
