"""One panel: writes all wanted values to it, at each change and each period, over one connection.

Outputs are levels, not messages: every period writes everything again, one place per request, because simple relay
modules know no other. A panel that was restarted or set by hand is thus right again after one period, and there is
nothing to resume. While the watch is not proved, the heartbeat stops, so that the panel's own watchdog can act.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping

from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ModbusException
from pymodbus.pdu import ModbusPDU

from embereye.addons.modbus.options import PanelOptions, Place
from embereye.process.condition import Condition
from embereye.process.tasks import first_of, raise_if_cancelled
from embereye.process.timing.backoff import Backoff

logger = logging.getLogger(__name__)
PAUSE_SECONDS = 0.5  # before the first new attempt to connect
MAX_PAUSE_SECONDS = 5.0  # short: a panel that comes back needs its outputs
LAST_SECONDS = 1.0  # for the last values when the hub stops
MEANINGS = {  # of exception codes, Modbus Application Protocol 1.1b3, chapter 7
    1: "it does not know this function",
    2: "it has no such address",
    3: "it refuses this value",
    4: "it failed to do that",
    6: "it is busy",
    10: "its gateway has no path to this unit",
    11: "the unit behind its gateway does not answer",
}


class PanelError(Exception):
    """A panel cannot be used; the text says why."""


def connection(options: PanelOptions) -> AsyncModbusTcpClient:
    """Make a client that neither repeats requests nor reconnects: its user does both."""
    return AsyncModbusTcpClient(
        options.host, port=options.port, timeout=options.timeout, retries=0, reconnect_delay=0, name="embereye"
    )


async def connect(options: PanelOptions, client: AsyncModbusTcpClient) -> None:
    """Connect `client`; PanelError if that fails within the panel's time-out."""
    try:
        async with asyncio.timeout(options.timeout):
            connected = await client.connect()
    except TimeoutError:
        raise PanelError(f"no answer within {options.timeout:g} s") from None
    finally:
        raise_if_cancelled()
    if not connected:
        raise PanelError("it cannot be reached")


async def write(client: AsyncModbusTcpClient, options: PanelOptions, place: Place, value: int) -> None:
    """Write `value` to `place`; PanelError if the panel does not confirm it."""
    with translated():
        if place.kind == "coil":
            answer = await client.write_coil(place.address, bool(value), device_id=options.unit)
        else:
            answer = await client.write_register(place.address, value, device_id=options.unit)
    check_answer(answer, str(place))


async def read(client: AsyncModbusTcpClient, options: PanelOptions, place: Place) -> int:
    """Read the value of `place`; PanelError."""
    with translated():
        if place.kind == "coil":
            answer = await client.read_coils(place.address, count=1, device_id=options.unit)
        else:
            answer = await client.read_holding_registers(place.address, count=1, device_id=options.unit)
    check_answer(answer, str(place))
    return int(answer.bits[0] if place.kind == "coil" else answer.registers[0])


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn the library's errors into ConnectionLostError, and raise a cancellation that it swallowed."""
    try:
        yield
    except (ModbusException, OSError, TimeoutError) as error:
        raise ConnectionLostError(" ".join(str(error).split()) or "no answer") from error
    finally:
        raise_if_cancelled()


class ConnectionLostError(PanelError):
    """The panel did not answer, or not as a Modbus server: the connection is useless."""


def check_answer(answer: ModbusPDU, place: str) -> None:
    """Raise PanelError if `answer` refuses the request for `place`."""
    if answer.isError():
        code = int(getattr(answer, "exception_code", 0))
        raise PanelError(f"{place}: {MEANINGS.get(code, 'it refuses the request')} (Modbus exception {code})")


class Panel:
    """Writes the wanted values to one panel until cancelled, or until `stop`."""

    def __init__(self, options: PanelOptions, wanted: Callable[[], tuple[Mapping[Place, int], bool]]) -> None:
        """`wanted` returns each place's value, and True while the heartbeat shall beat."""
        self.options = options
        self._wanted = wanted
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._beat = 0
        self.failing = Condition(logger, begin=logging.ERROR)
        self.failing.why = "not connected yet"
        self.written = 0  # confirmed writes
        self.failed = 0  # failed connections and writes
        self.last: Mapping[Place, int] = {}  # the values of the last complete write

    def notify(self) -> None:
        """Write now: a value has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled or stopped; connect again after a failure."""
        backoff = Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS)
        try:
            while not self._stopping.is_set():
                client = connection(self.options)
                try:
                    await connect(self.options, client)
                    await self._follow(client, backoff)
                except PanelError as error:
                    self._note_failing(str(error))
                finally:
                    client.close()
                await first_of(self._stopping.wait(), timeout=backoff.next())
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        """Write the last values, of a hub that no longer watches; wait for that at most LAST_SECONDS."""
        self._stopping.set()
        self._changed.set()
        await first_of(self._stopped.wait(), timeout=LAST_SECONDS)

    async def _follow(self, client: AsyncModbusTcpClient, backoff: Backoff) -> None:
        while True:
            stopping = self._stopping.is_set()
            self._changed.clear()
            await self._write_all(client)
            if not self.failing:
                backoff.reset()
            if stopping:
                return
            await first_of(self._changed.wait(), timeout=self.options.period)

    async def _write_all(self, client: AsyncModbusTcpClient) -> None:
        """Write every value; a refused one does not keep the others from their places."""
        values, beats = self._wanted()
        wanted = dict(values)
        heartbeat = self.options.table.heartbeat
        if heartbeat and beats:
            self._beat = (self._beat + 1) % (2 if heartbeat.kind == "coil" else 65_536)
            wanted[heartbeat] = self._beat
        refused = ""
        for place, value in wanted.items():
            try:
                await write(client, self.options, place, value)
            except ConnectionLostError:
                raise
            except PanelError as error:
                refused = refused or str(error)
                self.failed += 1
            else:
                self.written += 1
        self.last = values
        if refused:
            self.failing.fail(refused, "Modbus panel %s: %s", self.options.name, refused)
        else:
            self.failing.clear(*(("Modbus panel %s: works again", self.options.name) if self.failed else ()))

    def _note_failing(self, why: str) -> None:
        self.failed += 1
        options = self.options
        self.failing.fail(
            why, "Modbus panel %s at %s:%d: %s; trying again", options.name, options.host, options.port, why
        )
