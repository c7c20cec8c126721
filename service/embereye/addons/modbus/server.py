"""The table that PLCs read from the hub: coils and registers with the latest values.

It wraps pymodbus's server. Values are set at each decision; a PLC that writes gets exception 1, an address beyond the
table exception 2. Coils can also be read as discrete inputs, holding registers as input registers. The heartbeat counts
only while the hub decides and its watch is proved, so a PLC that sees it stop knows that the rest is stale.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pymodbus.constants import ExcCodes
from pymodbus.pdu import ModbusPDU
from pymodbus.server import ModbusTcpServer
from pymodbus.server.requesthandler import ServerRequestHandler
from pymodbus.simulator import DataType, SimData, SimDevice

from embereye.addons.modbus.options import Place, ServeOptions
from embereye.process.addresses import is_in_networks
from embereye.process.condition import Condition
from embereye.process.fields import Network

logger = logging.getLogger(__name__)
RETRY_SECONDS = 5.0  # between attempts to listen
MAX_CONNECTIONS = 32
WRITES = {"coil": (5, 1), "register": (6, 3)}  # function codes to write a place, and to read it
ALSO = {"coil": 2, "register": 4}  # function code of the read-only copy


class _Handler(ServerRequestHandler):
    """One connection; closed at once if its address is not allowed, or if there are too many."""

    def __init__(self, owner: "_Server", *traces: Any) -> None:
        super().__init__(owner, *traces)  # type: ignore[no-untyped-call]
        self._owner = owner

    def callback_connected(self) -> None:
        """Admit the connection, or close it."""
        super().callback_connected()
        peer = self.transport.get_extra_info("peername") if self.transport else None
        if len(self._owner.active_connections) > MAX_CONNECTIONS or not self._owner.is_allowed(peer):
            self._owner.rejected += 1
            self.close()


class _Server(ModbusTcpServer):
    """pymodbus's server, with an access list."""

    def __init__(self, allow: Sequence[Network], device: SimDevice, trace: Callable[[bool, ModbusPDU], ModbusPDU],
                 address: tuple[str, int]) -> None:  # fmt: skip
        super().__init__(device, address=address, trace_pdu=trace)
        self._allow = allow
        self.rejected = 0

    def is_allowed(self, peer: Sequence[Any] | None) -> bool:
        """True if a client at `peer` may read."""
        return not self._allow or is_in_networks(str(peer[0]) if peer else "", self._allow)

    def callback_new_connection(self) -> ServerRequestHandler:
        """Make the handler of a new connection."""
        return _Handler(self, self.trace_packet, self.trace_pdu, self.trace_connect)


class TableServer:
    """Serves the table. `update` sets its values; `run` until cancelled."""

    def __init__(self, options: ServeOptions, wanted: Callable[[], tuple[Mapping[Place, int], bool]]) -> None:
        """`wanted` returns each place's value, and True while the heartbeat shall beat."""
        self.options = options
        self._wanted = wanted
        self._updating = False
        self._beat = 0
        self._updates = asyncio.Event()
        self.failing = Condition(logger, begin=logging.ERROR)
        self.failing.why = "not listening yet"
        self.answered = 0  # requests
        self.refused = 0  # requests

    def update(self) -> None:
        """Set the latest values soon."""
        self._updates.set()

    async def run(self) -> None:
        """Serve until cancelled; while the port cannot be used, try again."""
        while True:
            server = _Server(
                self.options.allow, self._device(), self._count, (self.options.host, self.options.port)
            )  # fmt: skip
            try:
                await server.serve_forever(background=True)
                self.failing.clear()
                logger.info("Modbus: PLCs can read at %s:%d", self.options.host, self.options.port)
                await self._follow(server)
            except (RuntimeError, OSError) as error:
                why = f"cannot listen at {self.options.host}:{self.options.port}: {error}"
                self.failing.fail(why, "Modbus: %s; trying again", why)
            finally:
                with contextlib.suppress(RuntimeError):
                    await server.shutdown()  # type: ignore[no-untyped-call]
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, server: _Server) -> None:
        while True:
            self._updates.clear()
            values, beats = self._wanted()
            wanted = dict(values)
            if heartbeat := self.options.table.heartbeat:
                self._beat = (self._beat + beats) % (2 if heartbeat.kind == "coil" else 65_536)
                wanted[heartbeat] = self._beat
            await self._set(server, wanted)
            await self._updates.wait()

    async def _set(self, server: _Server, values: Mapping[Place, int]) -> None:
        unit = self.options.unit
        self._updating = True
        try:
            for place, value in values.items():
                for code in (WRITES[place.kind][1], ALSO[place.kind]):
                    await server.async_setValues(unit, code, place.address, [value])
        finally:
            self._updating = False

    def _device(self) -> SimDevice:
        """Make the table: every address up to the highest one of each kind, so that PLCs can read blocks."""
        places = [rule.place for rule in self.options.table.rules]
        if self.options.table.heartbeat:
            places.append(self.options.table.heartbeat)
        highest = {kind: max((place.address for place in places if place.kind == kind), default=0)
                   for kind in WRITES}  # fmt: skip

        def coils() -> list[SimData]:
            return [SimData(0, count=-(-(highest["coil"] + 1) // 16) * 16, values=False, datatype=DataType.BITS)]

        def registers() -> list[SimData]:
            return [SimData(0, count=highest["register"] + 1, values=0, datatype=DataType.REGISTERS)]

        return SimDevice(
            self.options.unit, simdata=(coils(), coils(), registers(), registers()), action=self._check_access
        )

    async def _check_access(
        self, function_code: int, start_address: int, address: int, count: int, current: list[int],
        values: list[int] | list[bool] | None,
    ) -> ExcCodes | None:  # fmt: skip
        """Refuse what PLCs write; pymodbus calls it for each request."""
        del function_code, start_address, address, count, current
        return None if values is None or self._updating else ExcCodes.ILLEGAL_FUNCTION

    def _count(self, sending: bool, message: ModbusPDU) -> ModbusPDU:
        if sending:
            if message.isError():
                self.refused += 1
            else:
                self.answered += 1
        return message
