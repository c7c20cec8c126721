"""The client: one stream to each shard that owns some of its devices; every reading is sent until acknowledged."""

import asyncio
import contextlib
import logging
import math
import sqlite3
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from types import TracebackType

import grpc

from embereye.client.outbox import Counting, Outbox, Spooled, SpoolFullError
from embereye.process.grpc_server import converse
from embereye.process.http.bearer import bearer
from embereye.process.tasks import Tasks, UnrequestedCancellationError, no_stray_cancellation
from embereye.process.timing.backoff import Backoff
from embereye.process.tls.client import ClientTls, dial
from embereye.units import split_address
from embereye.v1.ingest_pb2 import (
    DeviceBatch,
    Drain,
    IngestRequest,
    IngestResponse,
    Reading,
    ReadingColumns,
    ThermalFrame,
    Watermark,
)
from embereye.v1.ingest_pb2_grpc import IngestStub

__all__ = ["Client", "SpoolFullError"]
logger = logging.getLogger(__name__)
CAPACITY = 1_000_000  # readings and frames not acknowledged
BATCH = 500  # readings and frames in a batch
LINGER = 0.05  # seconds that a reading waits for others
WINDOW = 16  # batches in flight on a stream
RETRY_SECONDS = 1.0  # until a disk that could not be written is tried again
REJECTED_SECONDS = 5.0  # until a device that no shard knows is tried again: it may be declared meanwhile
# Epochs are nanoseconds. Who begins anew after another one's leaves up to a millisecond: two who do so at once must not
# count in the same epoch, where what one sends would pass for the other's that was taken already.
EPOCH_SPREAD = 1_000_000
LAST_EPOCH = 2**63 - 1  # that a spool can keep
KNOWN = 64  # shards that are remembered, to ask them where the service does not answer


@dataclass(slots=True)
class _Device:
    name: str
    counting: Counting
    pending: list[Reading | ThermalFrame] = field(default_factory=list)
    calibration: bytes = b""
    batches: deque[Spooled] = field(default_factory=deque)
    sent: int = 0  # of batches, from the left, on `holder`
    holder: "_Link | None" = None  # the link on which they are in flight
    route: str = ""  # the target that owns it; "": the fleet's service
    rest_until: float = 0.0  # monotonic seconds
    began_anew: bool = False  # counting, after another sender's epoch
    moves: Backoff = field(default_factory=lambda: Backoff(floor=0.02, cap=2.0))  # since the last acknowledgement


class Client:
    """Sends readings of any number of devices to a fleet's sensor shards; use it as `async with Client(…) as client:`.

    `target` is the fleet's service or any of its shards, "host:port". A reading is safe once it is on disk, at most
    `linger` seconds after `send`, or when `spooled()` returns. It is sent, and sent again if need be, until a shard has
    analysed it and said so. While the disk cannot be written it waits in memory, and `failing` says why. Each
    program has a `spool` of its own: sqlite3.OperationalError where another one has it. With `spool=None` what waits is
    kept in memory only. What a shard had analysed but not acknowledged when it was killed is analysed again by the next
    one. `token` is shown where the fleet's spec.access asks for one. With `tls` every shard has to prove the name that
    `target` has, or `tls.server_name`.
    """

    def __init__(
        self,
        target: str,
        *,
        spool: Path | None = None,
        capacity: int = CAPACITY,
        batch: int = BATCH,
        linger: float = LINGER,
        jitter: Random | None = None,
        token: str = "",
        tls: ClientTls | None = None,
    ) -> None:
        self._target = target
        self.shown = bearer(token)
        self._tls = tls
        self._outbox = Outbox(spool, capacity)
        self._batch = batch
        self._linger = linger
        self._jitter = jitter or Random()
        self._devices: OrderedDict[str, _Device] = OrderedDict()  # the one that has waited longest to send comes first
        self._links: dict[str, _Link] = {}
        self._known: dict[str, None] = {}  # shards, the latest last
        self._tasks = Tasks()
        self._pending = 0
        self._dirty: dict[str, _Device] = {}
        self._changed = asyncio.Event()
        self.acknowledged = 0  # readings and frames since the start
        self.rejected: dict[str, str] = {}  # device → why no shard accepts it
        self.failing = ""  # why what is queued cannot be written to disk; '' where it can
        for name, batches in self._outbox.load().items():
            self._device(name).batches.extend(batches)

    async def __aenter__(self) -> "Client":
        await self._tasks.__aenter__()
        self._link(self._target)
        self._tasks.start(self._spool_regularly(), name="client-spool")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.spooled()
        finally:
            try:
                await self._tasks.stop()
            finally:
                self._outbox.close()

    @property
    def waiting(self) -> int:
        """Readings and frames that no shard has acknowledged."""
        return self._outbox.items + self._pending

    def send(
        self,
        device: str,
        *,
        smoke_adc: float | None = None,
        flame_adc: float | None = None,
        gas_adc: float | None = None,
        flame_detected: bool | None = None,
        time_ns: int = 0,
    ) -> int:
        """Queue a reading and return its sequence. SpoolFullError: too much is unacknowledged, it was not queued."""
        reading = Reading(
            time_ns=time_ns or time.time_ns(),
            smoke_adc=smoke_adc,
            flame_adc=flame_adc,
            gas_adc=gas_adc,
            flame_detected=flame_detected,
        )
        return self._enqueue(self._device(device), reading)

    def send_frame(self, device: str, words: bytes, *, time_ns: int = 0) -> int:
        """Queue a thermal frame (768 or 834 big-endian words) and return its sequence. SpoolFullError as in `send`."""
        return self._enqueue(self._device(device), ThermalFrame(time_ns=time_ns or time.time_ns(), words=words))

    def calibrate(self, device: str, words: bytes) -> None:
        """Set a device's calibration: 832 big-endian words of its EEPROM. It goes in front of what is sent later."""
        state = self._device(device)
        state.calibration = words
        for link in self._links.values():
            link.calibrated.discard(device)

    def spooled(self) -> None:
        """Write everything that was queued to disk; sqlite3.Error where that cannot be done: it stays queued."""
        batches: list[tuple[_Device, DeviceBatch, int, int]] = []
        for state in self._dirty.values():
            for start in range(0, len(state.pending), self._batch):
                part = state.pending[start : start + self._batch]
                batch = _packed(state.name, state.counting.epoch, part)
                batches.append((state, batch, part[-1].sequence, len(part)))
        try:
            spooled = self._outbox.put([(batch, last, items) for _, batch, last, items in batches])
        except sqlite3.Error as error:
            if not self.failing:
                logger.warning("readings cannot be kept: %s; they wait in memory, and are not sent", error)
            self.failing = str(error)
            raise
        if self.failing:
            logger.warning("readings can be kept again")
        self.failing = ""
        for state in self._dirty.values():
            state.pending = []
        self._dirty, self._pending = {}, 0
        for (state, *_), one in zip(batches, spooled, strict=True):
            state.batches.append(one)
        if batches:
            self._wake()

    async def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything is acknowledged; True if it is. Cancelling it loses nothing."""
        self._spool_if_possible()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.waiting:
                    self._changed.clear()
                    await self._changed.wait()
        return not self.waiting

    def _enqueue(self, state: _Device, item: Reading | ThermalFrame) -> int:
        self._outbox.check_room(self._pending)
        state.counting.sequence += 1
        item.sequence = state.counting.sequence
        state.pending.append(item)
        self._pending += 1
        self._dirty[state.name] = state
        if len(state.pending) >= self._batch and not self.failing:
            self._spool_if_possible()
        return item.sequence

    def _spool_if_possible(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.spooled()

    def _device(self, name: str) -> _Device:
        state = self._devices.get(name)
        if state is None:
            state = self._devices[name] = _Device(name, self._outbox.counting(name))
        return state

    async def _spool_regularly(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS if self.failing else self._linger)
            self._spool_if_possible()
            now = time.monotonic()
            if rested := [state for state in self._devices.values() if state.rest_until and state.rest_until <= now]:
                for state in rested:
                    state.rest_until = 0.0
                self._wake()

    def _link(self, target: str) -> "_Link":
        link = self._links.get(target)
        if link is None:
            link = self._links[target] = _Link(self, target, home=target == self._target, jitter=self._jitter)
            self._tasks.start(link.run(), name=f"client-{target}")
        return link

    def _wake(self) -> None:
        for link in self._links.values():
            link.wake.set()

    def next_batches(self, link: "_Link") -> list[tuple[_Device, Spooled, bool]]:
        """What is sent next on `link`, as its window has room: device, batch, whether nothing of it is in flight.

        One batch of each device, those first that have waited longest: of a link that is short of room, the devices
        that send most must not leave the others without.
        """
        chosen: list[tuple[_Device, Spooled, bool]] = []
        items = 0
        for state in self._devices.values() if link.in_flight < WINDOW else ():
            if not self._may_send(state, link):
                continue
            spooled = state.batches[state.sent]
            items += spooled.items
            if chosen and items > self._batch:
                break
            chosen.append((state, spooled, state.holder is None))
            state.sent += 1
            state.holder = link
            link.in_flight += 1
        for state, *_ in chosen:
            self._devices.move_to_end(state.name)
        return chosen

    def _may_send(self, state: _Device, link: "_Link") -> bool:
        return (
            state.sent < len(state.batches)
            and link.in_flight < WINDOW
            and not link.draining
            and (state.route or self._target) == link.target
            and state.holder in {None, link}  # another shard may still acknowledge what it was sent
            and state.rest_until <= time.monotonic()
        )

    def body(self, state: _Device, spooled: Spooled, link: "_Link") -> DeviceBatch | None:
        """What is sent for a spooled batch; a stream learns a device's calibration with the first one.

        And with the first one after a shard let go of the device, or asked: it keeps none of devices that go.
        None where it was lost with a damaged spool: nothing waits for it any more.
        """
        batch = self._outbox.body(spooled.number)
        if batch is None:
            state.batches.remove(spooled)
            state.sent -= 1
            link.in_flight -= 1
            state.holder = link if state.sent else None
            self._changed.set()
            return None
        if state.calibration and state.name not in link.calibrated:
            link.calibrated.add(state.name)
            batch.calibration = state.calibration
        return batch

    def handle_response(self, response: IngestResponse, link: "_Link") -> None:
        """Act on a shard's acknowledgement, drain or refusal, or on its request for calibrations."""
        done = [one for mark in response.ack.watermarks for one in self._acknowledged(mark, link)]
        if done:
            self._outbox.forget(done)
            self.acknowledged += sum(one.items for one in done)
        if response.HasField("drain"):
            self._drain(response.drain, link)
        for name in response.rejected.devices:
            if (state := self._devices.get(name)) is not None and state.holder is link:
                state.route = ""
                self._refused(state, link, response.rejected.reason)
        link.calibrated.difference_update(response.calibrate.devices)
        self._changed.set()
        self._wake()

    def _acknowledged(self, mark: Watermark, link: "_Link") -> list[Spooled]:
        """The batches of a device, in flight on `link` until now, that `mark` says are accounted for."""
        state = self._devices.get(mark.device)
        if state is None or state.holder is not link:
            return []
        # Those of epochs before, as a damaged spool has left, were accounted for before them.
        in_flight = list(islice(state.batches, state.sent))
        own = [place for place, one in enumerate(in_flight, 1) if one.epoch == mark.epoch and one.last <= mark.sequence]
        done = [state.batches.popleft() for _ in range(max(own, default=0))]
        state.sent -= len(done)
        link.in_flight -= len(done)
        if state.sent and state.batches[0].epoch < mark.epoch:
            if self._begin_anew(state, mark.epoch):
                self.release(state, link)
            else:
                self._refused(state, link, "a newer sender speaks for it: do two programs send for one device?")
            return done
        self.rejected.pop(mark.device, None)
        state.moves.reset()
        link.useful = True
        if not state.sent:
            state.holder = None
        return done

    def _begin_anew(self, state: _Device, after: int) -> bool:
        """Have what waits of a device counted in epochs later than `after`, once; whether that was done.

        Where a clock is behind at the start, as without a battery, so is the epoch, and the newer one is that of the
        sender's own last run. To who had something acknowledged under its epoch it is that of another program.
        """
        first, counting = state.batches[0], state.counting
        if state.began_anew or first.last != first.items or after > LAST_EPOCH - 2 * EPOCH_SPREAD:
            return False
        start = after + self._jitter.randint(1, EPOCH_SPREAD)
        epochs = dict.fromkeys([*(one.epoch for one in state.batches), counting.epoch])
        later = {epoch: start + number for number, epoch in enumerate(epochs)}
        renewed = Counting(later[counting.epoch], counting.sequence)
        try:
            self._outbox.renew(state.name, [(one, later[one.epoch]) for one in state.batches], renewed)
        except sqlite3.Error:
            return False
        state.counting = renewed
        state.began_anew = True
        logger.warning("device %s: an earlier sender's epoch was later: counting goes on after that", state.name)
        return True

    def _refused(self, state: _Device, link: "_Link", reason: str) -> None:
        """No shard accepts what a device sends: keep it, try again later, and leave the stream to the others."""
        if self.rejected.get(state.name) != reason:
            logger.warning("device %s: what it sends is not accepted: %s", state.name, reason)
        self.rejected[state.name] = reason
        state.rest_until = time.monotonic() + REJECTED_SECONDS
        self.release(state, link)

    def _drain(self, drain: Drain, link: "_Link") -> None:
        for address in (*drain.peers, drain.target):
            self._remember(address)
        if not drain.devices:
            link.draining = True
            link.successor = drain.target
            if drain.target and drain.target != link.target:
                # Each as soon as nothing of it is in flight here.
                for each in self._devices.values():
                    if (each.route or self._target) == link.target:
                        self._send_on(each, drain.target)
                self._link(drain.target)
            return
        for name in drain.devices:
            state = self._devices.get(name)
            if state is None:
                continue
            # What the shard took of it is acknowledged by now; the other one gets all the rest.
            self.release(state, link)
            if (state.route or self._target) == link.target:  # else it went already: this answers what was sent before
                self._send_on(state, drain.target)
        if drain.target:
            self._link(drain.target)

    def _send_on(self, state: _Device, target: str) -> None:
        """Send a device's batches to `target` from now on: at once, but not again and again."""
        state.route = "" if target == self._target else target
        pause = state.moves.next() if state.moves.failures else 0.0
        state.moves.failures = max(state.moves.failures, 1)
        if pause:
            state.rest_until = time.monotonic() + pause

    def _remember(self, address: str) -> None:
        if not address or address == self._target:
            return
        self._known.pop(address, None)
        self._known[address] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def home(self, failures: int) -> str:
        """Where to ask for the owners of devices after so many failures: the service, then shards known from before."""
        if failures % 2 == 0 or not self._known:
            return self._target
        return self._jitter.choice(list(self._known))

    def dial(self, address: str) -> grpc.aio.Channel:
        """A channel to a shard. OSError where the files of `tls` cannot be read."""
        return dial(address, self._tls, server_name=split_address(self._target)[0] if self._tls else "")

    def release(self, state: _Device, link: "_Link") -> None:
        """What is in flight for a device on `link` will not be acknowledged there, nor is its calibration kept."""
        link.calibrated.discard(state.name)
        if state.holder is link:
            link.in_flight -= state.sent
            state.sent, state.holder = 0, None

    def holds(self, link: "_Link") -> bool:
        """Whether anything is in flight on `link`."""
        return any(state.holder is link for state in self._devices.values())

    def lost(self, link: "_Link") -> None:
        """`link` is closed: what was in flight is sent again; its devices are looked for at the fleet's service.

        Or where they were, if the shard said that another process goes on there.
        """
        again = link.useful and link.successor == link.target
        for state in self._devices.values():
            self.release(state, link)
            if state.route == link.target and not again:
                self._send_on(state, "")
        if not link.home:
            del self._links[link.target]
            if again:
                self._link(link.target)
        self._wake()


class _Link:
    """The stream to one shard."""

    def __init__(self, client: Client, target: str, *, home: bool, jitter: Random) -> None:
        self.target = target
        self.home = home
        self.in_flight = 0
        self.draining = False
        self.successor = ""  # where the shard says that another process goes on in its place
        self.useful = False  # whether anything was acknowledged here
        self.calibrated: set[str] = set()
        self.wake = asyncio.Event()
        self._client = client
        self._jitter = jitter

    async def run(self) -> None:
        """Keep the stream open; one that the fleet sent us to, until it closes."""
        backoff = Backoff(floor=0.02, cap=5.0, jitter=self._jitter)
        logged = ""
        while True:
            self.draining, self.successor, self.useful = False, "", False
            address = self._client.home(backoff.failures) if self.home else self.target
            try:
                async with (
                    self._client.dial(address) as link,
                    contextlib.aclosing(
                        converse(IngestStub(link).Stream(metadata=self._client.shown), self._send)
                    ) as responses,
                ):
                    with no_stray_cancellation("the stream"):  # by what cannot be read of the spool now
                        async for response in responses:
                            self._client.handle_response(response, self)
                            backoff.reset()
                            if self.draining and not self._client.holds(self):
                                break
                reason = "drained" if self.draining else "the shard closed the stream"
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
            except UnrequestedCancellationError as error:
                reason = str(error)
            except OSError as error:  # certificates that cannot be read now: they may be on their way
                reason = f"TLS: {error}"
            finally:
                self._client.lost(self)
            if reason != logged:
                logger.info("%s: %s, %d not acknowledged", address, reason, self._client.waiting)
                logged = reason
            if not self.home:
                return
            await asyncio.sleep(backoff.next())

    async def _send(self, call: "grpc.aio.StreamStreamCall[IngestRequest, IngestResponse]") -> None:
        while True:
            self.wake.clear()
            while chosen := self._client.next_batches(self):
                request = IngestRequest()
                for state, spooled, restart in chosen:
                    if (batch := self._client.body(state, spooled, self)) is not None:
                        batch.restart = restart
                        request.devices.append(batch)
                if request.devices:
                    await call.write(request)
            await self.wake.wait()


def _packed(device: str, epoch: int, items: list[Reading | ThermalFrame]) -> DeviceBatch:
    """Items of consecutive sequences as a batch: in columns where there are only readings, and some of them."""
    batch = DeviceBatch(device=device, epoch=epoch)
    readings = [item for item in items if isinstance(item, Reading)]
    if len(readings) != len(items) or len(items) < 4:
        batch.readings.extend(readings)
        batch.frames.extend(item for item in items if isinstance(item, ThermalFrame))
        return batch
    columns = ReadingColumns(first_sequence=items[0].sequence, time_ns=[reading.time_ns for reading in readings])
    for name in ("smoke_adc", "flame_adc", "gas_adc", "flame_detected"):
        if any(reading.HasField(name) for reading in readings):
            values = [getattr(one, name) if one.HasField(name) else math.nan for one in readings]
            getattr(columns, name).extend(values)
    batch.columns.CopyFrom(columns)
    return batch
