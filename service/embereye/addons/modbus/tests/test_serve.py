"""The table that PLCs read, with pymodbus's client as PLC."""

import contextlib
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

from harness.eventually import eventually
from harness.in_process import report, running_hub, sign
from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ModbusException

from embereye.addons.modbus.building import Building
from embereye.addons.modbus.hub import ModbusAddon
from embereye.addons.modbus.options import ModbusOptions, Place, Rule, ServeOptions, Table
from embereye.hub.hub import Hub
from embereye.process.addresses import free_ports
from embereye.process.fields import Network

RULES = (
    Rule(Place("coil", 17), "alarm", ("*",)),
    Rule(Place("register", 1), "state", ("hall",)),
    Rule(Place("register", 5), "fault", ("*",), on=700),
)


@contextlib.asynccontextmanager
async def serving(folder: Path, *allow: Network) -> AsyncIterator[tuple[Hub, Building, AsyncModbusTcpClient]]:
    (port,) = free_ports(1)
    serve = ServeOptions(port, Table("serve", RULES, Place("register", 0)), allow=allow)
    async with running_hub(folder, lambda: ModbusAddon(ModbusOptions(serve=serve))) as (hub, parts):
        building: Building = parts.tasks["modbus"].__self__  # type: ignore[attr-defined]
        assert building.server is not None
        server = building.server
        await eventually(lambda: not server.failing)
        client = AsyncModbusTcpClient("127.0.0.1", port=port, timeout=5, retries=0, reconnect_delay=0)
        assert await client.connect()
        try:
            yield hub, building, client
        finally:
            client.close()


async def test_a_plc_reads_states_and_a_heartbeat_and_writes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (hub, building, plc):
        report(hub, sign())
        read = plc.read_holding_registers

        async def state() -> list[int]:
            return list((await read(0, count=6)).registers)

        await eventually(lambda: _is(state, lambda values: values[1] == 2))
        assert (await plc.read_coils(17, count=1)).bits[0]
        assert (await plc.read_discrete_inputs(17, count=1)).bits[0]
        assert not (await plc.read_coils(16, count=1)).bits[0]
        assert list((await plc.read_input_registers(1, count=1)).registers) == [2]
        first = (await state())[0]
        await eventually(lambda: _is(state, lambda values: values[0] > first), goal="a heartbeat")
        assert (await plc.write_register(1, 0)).exception_code == 1
        assert (await plc.write_coil(17, False)).exception_code == 1
        assert (await plc.read_coils(17, count=1)).bits[0]
        assert (await plc.read_holding_registers(500, count=1)).exception_code == 2
        assert (await plc.read_holding_registers(0, count=1, device_id=9)).isError()
        assert building.server is not None
        assert building.server.refused == 4


async def _is(read, condition) -> bool:
    return bool(condition(await read()))


async def test_a_client_that_is_not_allowed_reads_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, ipaddress.ip_network("10.0.0.0/8")) as (_, __, stranger):
        with contextlib.suppress(ModbusException):
            answer = await stranger.read_holding_registers(0, count=1)
            assert answer.isError()


async def test_an_allowed_client_reads(tmp_path: Path) -> None:
    async with serving(tmp_path, ipaddress.ip_network("127.0.0.0/8")) as (_, __, plc):
        assert not (await plc.read_holding_registers(0, count=1)).isError()
