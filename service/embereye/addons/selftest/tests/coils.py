"""A real Modbus server with 16 coils."""

import contextlib
from collections.abc import AsyncIterator, Callable

from pymodbus.constants import ExcCodes
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from embereye.process.addresses import free_ports


@contextlib.asynccontextmanager
async def modbus_coils(written: Callable[[int, bool], None]) -> AsyncIterator[int]:
    """Serve the coils of unit 1, and call `written` with each address and value; yields the port."""
    (port,) = free_ports(1)

    async def note(
        _: int, __: int, address: int, ___: int, ____: list[int], values: list[int] | list[bool] | None
    ) -> ExcCodes | None:
        if values:
            written(address, bool(values[0]))
        return None

    bits = [SimData(0, count=16, values=False, datatype=DataType.BITS)]
    words = [SimData(0, count=16, values=0, datatype=DataType.REGISTERS)]
    server = ModbusTcpServer(SimDevice(1, simdata=(bits, bits, words, words), action=note), address=("127.0.0.1", port))
    await server.serve_forever(background=True)
    try:
        yield port
    finally:
        await server.shutdown()
