"""Switches of self-tests: coils of a real Modbus server, and outputs that the hub does not have."""

import asyncio
import contextlib

import pytest

from embereye.addons.selftest.options import ActuatorSwitch, ModbusSwitch, SelfTestOptions
from embereye.addons.selftest.switch import SwitchError, switch
from embereye.process.addresses import free_ports

from .coils import modbus_coils

NOTHING = SelfTestOptions({})


async def test_a_coil_is_switched_on_and_off() -> None:
    written: list[tuple[int, bool]] = []
    async with modbus_coils(lambda *write: written.append(write)) as port:
        for on in (True, False):
            await switch(NOTHING, None, ModbusSwitch("127.0.0.1", 3, port), on=on)
    assert written == [(3, True), (3, False)]


async def test_a_coil_that_the_server_lacks_is_an_error_with_its_number() -> None:
    async with modbus_coils(lambda *_: None) as port:
        with pytest.raises(SwitchError, match=r"it refuses coil 99 \(Modbus exception 2\)"):
            await switch(NOTHING, None, ModbusSwitch("127.0.0.1", 99, port), on=True)


async def test_a_server_that_is_gone_is_an_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(SwitchError, match="cannot be reached"):
        await switch(NOTHING, None, ModbusSwitch("127.0.0.1", 3, port), on=True)


async def test_a_server_that_does_not_answer_is_an_error() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(SwitchError, match=r"no answer within 5 s|No response"):
            await switch(NOTHING, None, ModbusSwitch("127.0.0.1", 3, port), on=True)


async def test_a_hub_without_the_add_on_control_has_no_outputs() -> None:
    with pytest.raises(SwitchError, match="the add-on control is not installed"):
        await switch(NOTHING, None, ActuatorSwitch("relays", "lamp"), on=True)
