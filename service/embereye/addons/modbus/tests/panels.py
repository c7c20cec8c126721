"""A panel under test: pymodbus's server, which records what is written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pymodbus.constants import ExcCodes
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from embereye.process.addresses import free_ports


class FakePanel:
    """16 coils and 16 holding registers, which can be switched off and on again."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.coils: dict[int, list[int]] = {}  # everything that was written, by address
        self.registers: dict[int, list[int]] = {}
        self._server: ModbusTcpServer | None = None

    async def _note(
        self, code: int, _: int, address: int, __: int, ___: list[int], values: list[int] | list[bool] | None
    ) -> ExcCodes | None:
        if values:
            written = self.coils if code == 5 else self.registers
            written.setdefault(address, []).append(int(values[0]))
        return None

    async def start(self) -> None:
        def bits() -> list[SimData]:
            return [SimData(0, count=16, values=False, datatype=DataType.BITS)]

        def words() -> list[SimData]:
            return [SimData(0, count=16, values=0, datatype=DataType.REGISTERS)]

        device = SimDevice(1, simdata=(bits(), bits(), words(), words()), action=self._note)
        self._server = ModbusTcpServer(device, address=("127.0.0.1", self.port))
        await self._server.serve_forever(background=True)

    async def stop(self) -> None:
        if self._server:
            await self._server.shutdown()
        self._server = None

    def coil(self, address: int) -> int | None:
        """The value that was written last; None if there is none."""
        return self.coils.get(address, [None])[-1]

    def register(self, address: int) -> int | None:
        """The value that was written last; None if there is none."""
        return self.registers.get(address, [None])[-1]


@contextlib.asynccontextmanager
async def running_panel() -> AsyncIterator[FakePanel]:
    panel = FakePanel()
    await panel.start()
    try:
        yield panel
    finally:
        await panel.stop()


@contextlib.asynccontextmanager
async def babbling_panel(answer: bytes) -> AsyncIterator[int]:
    """A TCP server that answers anything with `answer`; yields its port."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(100):
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
