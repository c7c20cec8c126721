"""The client: one stream to each shard that owns some of its devices; every reading is sent until acknowledged.

Readings collect in memory for a moment and are then written to the outbox on disk as batches (`save`). Only batches on
disk are sent. `_Link` is the stream to one shard; it asks the client for `next_batches`, of one device at a time on one
link only, and passes responses to `handle_response`:

    Ack         removes the batches up to the watermark
    Drain       moves devices, or all of the link's devices, to another shard
    Rejected    pauses a device that no shard knows
    Calibrate   sends calibrations again

If a link ends, its batches in flight are sent again on another one.
"""

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
from embereye.process.condition import Condition
from embereye.process.grpc_server import converse
from embereye.process.http.bearer import bearer
from embereye.process.reason import reason_of
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
CAPACITY = 1_000_000  # unacknowledged readings and frames
BATCH = 500  # readings and frames in a batch
LINGER = 0.05  # seconds for which a reading waits for others
WINDOW = 16  # batches in flight on a stream
RETRY_SECONDS = 1.0  # between attempts to write a full disk
REJECTED_SECONDS = 5.0  # between attempts for a device that no shard knows; it may be declared meanwhile
# Random step of a new epoch after another sender's, in nanoseconds. Two senders that choose one at the same moment must
# not choose the same, or the readings of one would count as duplicates of the other's.
EPOCH_SPREAD = 1_000_000
LAST_EPOCH = 2**63 - 1  # the largest epoch that a spool can store
MAX_KNOWN = 64  # remembered shards, which are dialled if the service does not answer


@dataclass(slots=True)
class _Device:
    name: str
    counting: Counting
    pending: list[Reading | ThermalFrame] = field(default_factory=list)
    calibration: bytes = b""
    batches: deque[Spooled] = field(default_factory=deque)
    sent: int = 0  # number of batches in flight, from the left
    carrier: "_Link | None" = None  # the link on which they are in flight
    route: str = ""  # address of its owner; "": the fleet's service
    paused_until: float = 0.0  # monotonic seconds
    has_renewed_epoch: bool = False  # it has moved to an epoch after another sender's

    moves: Backoff = field(default_factory=lambda: Backoff(floor=0.02, cap=2.0))  # since the last acknowledgement


class Client:
    """Sends readings of any number of devices to a fleet's sensor shards; use it as `async with Client(…) as client:`.

    `target` is the fleet's service or any of its shards, "host:port". A reading is safe once it is on disk: at most
    `linger` seconds after `send`, or when `save()` returns. It is sent, repeatedly if necessary, until a shard has
    acknowledged its analysis. While the disk cannot be written, readings wait in memory, and `failing` says why.

    Each program needs a separate `spool` file; sqlite3.OperationalError if another program uses it. With `spool=None`
    readings wait only in memory. If a shard is killed, its unacknowledged readings are analysed again by the next one.
    `token` is for fleets whose spec.access requires one. With `tls`, certificates of all shards must have the host of
    `target` as a name, or `tls.server_name`.
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
        self.metadata = bearer(token)
        self._tls = tls
        self._outbox = Outbox(spool, capacity)
        self._batch = batch
        self._linger = linger
        self._jitter = jitter or Random()
        self._devices: OrderedDict[str, _Device] = (
            OrderedDict()
        )  # in order of their turns: the device that has waited longest is first
        self._links: dict[str, _Link] = {}
        self._known: dict[str, None] = {}  # addresses of shards, the latest last
        self._tasks = Tasks()
        self._pending = 0
        self._dirty: dict[str, _Device] = {}
        self._changed = asyncio.Event()
        self.rejected_seconds = REJECTED_SECONDS
        self.acknowledged = 0  # readings and frames since the start
        self.rejected: dict[str, str] = {}  # device → why no shard accepts it
        self.failing = Condition(logger, first_only=True)  # queued readings cannot be written to disk
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
            self.save()
        finally:
            try:
                await self._tasks.stop()
            finally:
                self._outbox.close()

    @property
    def waiting(self) -> int:
        """The number of readings and frames that no shard has acknowledged."""
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
        """Queue a reading and return its sequence. SpoolFullError if too many are unacknowledged: it is not queued."""
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
        """Set a device's calibration: 832 big-endian words of its EEPROM. It is sent before later readings."""
        state = self._device(device)
        state.calibration = words
        for link in self._links.values():
            link.calibrated.discard(device)

    def save(self) -> None:
        """Write all queued readings to disk; sqlite3.Error if that fails: they stay queued."""
        batches: list[tuple[_Device, DeviceBatch, int, int]] = []
        for state in self._dirty.values():
            for start in range(0, len(state.pending), self._batch):
                part = state.pending[start : start + self._batch]
                batch = _packed(state.name, state.counting.epoch, part)
                batches.append((state, batch, part[-1].sequence, len(part)))
        try:
            spooled = self._outbox.put([(batch, last, items) for _, batch, last, items in batches])
        except sqlite3.Error as error:
            sentence = "readings cannot be written to disk: %s; they wait in memory and are not sent"
            self.failing.fail(str(error), sentence, error)
            raise
        self.failing.clear("readings can be written to disk again")
        for state in self._dirty.values():
            state.pending = []
        self._dirty, self._pending = {}, 0
        for (state, *_), batch_on_disk in zip(batches, spooled, strict=True):
            state.batches.append(batch_on_disk)
        if batches:
            self._wake()

    async def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything is acknowledged; True if it is. Cancelling it loses nothing."""
        self._save_if_possible()
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
            self._save_if_possible()
        return item.sequence

    def _save_if_possible(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.save()

    def _device(self, name: str) -> _Device:
        state = self._devices.get(name)
        if state is None:
            state = self._devices[name] = _Device(name, self._outbox.counting(name))
        return state

    async def _spool_regularly(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS if self.failing else self._linger)
            self._save_if_possible()
            now = time.monotonic()
            if due := [state for state in self._devices.values() if 0 < state.paused_until <= now]:
                for state in due:
                    state.paused_until = 0.0
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
        """The batches to send next on `link`, if its window has room: device, batch, and whether none is in flight.

        One batch of each device, in order of their turns, so that devices with many readings do not starve others.
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
            chosen.append((state, spooled, state.carrier is None))
            state.sent += 1
            state.carrier = link
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
            and state.carrier in {None, link}  # another shard may still acknowledge batches in flight
            and state.paused_until <= time.monotonic()
        )

    def body(self, state: _Device, spooled: Spooled, link: "_Link") -> DeviceBatch | None:
        """The message for a spooled batch; None if it was lost with a damaged spool, and is forgotten.

        It includes the device's calibration if the shard needs it: in the first batch on a stream, after the shard has
        released the device, or on request.
        """
        batch = self._outbox.body(spooled.number)
        if batch is None:
            state.batches.remove(spooled)
            state.sent -= 1
            link.in_flight -= 1
            state.carrier = link if state.sent else None
            self._changed.set()
            return None
        if state.calibration and state.name not in link.calibrated:
            link.calibrated.add(state.name)
            batch.calibration = state.calibration
        return batch

    def handle_response(self, response: IngestResponse, link: "_Link") -> None:
        """Act on a shard's acknowledgement, drain, rejection, or request for calibrations."""
        done = [batch for mark in response.ack.watermarks for batch in self._take_acknowledged(mark, link)]
        if done:
            self._outbox.forget(done)
            self.acknowledged += sum(batch.items for batch in done)
        if response.HasField("drain"):
            self._drain(response.drain, link)
        for name in response.rejected.devices:
            if (state := self._devices.get(name)) is not None and state.carrier is link:
                state.route = ""
                self._pause_rejected(state, link, response.rejected.reason)
        link.calibrated.difference_update(response.calibrate.devices)
        self._changed.set()
        self._wake()

    def _take_acknowledged(self, mark: Watermark, link: "_Link") -> list[Spooled]:
        """Remove the batches in flight on `link` that `mark` acknowledges from their device, and return them."""
        state = self._devices.get(mark.device)
        if state is None or state.carrier is not link:
            return []
        # Earlier batches of older epochs, which a damaged spool may have left, are acknowledged with it.
        in_flight = list(islice(state.batches, state.sent))
        counts = [
            count
            for count, batch in enumerate(in_flight, 1)
            if batch.epoch == mark.epoch and batch.last <= mark.sequence
        ]
        done = [state.batches.popleft() for _ in range(max(counts, default=0))]
        state.sent -= len(done)
        link.in_flight -= len(done)
        if state.sent and state.batches[0].epoch < mark.epoch:
            if self._renew_epoch(state, mark.epoch):
                self.release(state, link)
            else:
                self._pause_rejected(state, link, "a newer program sends for this device: stop one of the two")
            return done
        self.rejected.pop(mark.device, None)
        state.moves.reset()
        link.useful = True
        if not state.sent:
            state.carrier = None
        return done

    def _renew_epoch(self, state: _Device, after: int) -> bool:
        """Move the waiting batches of a device to epochs later than `after`, once; False if that is not allowed.

        If the clock was behind at the start, as without a battery, the newer epoch may be that of this program's last
        run. If anything was acknowledged under the old epoch, another program is sending for this device.
        """
        first, counting = state.batches[0], state.counting
        if state.has_renewed_epoch or first.last != first.items or after > LAST_EPOCH - 2 * EPOCH_SPREAD:
            return False
        start = after + self._jitter.randint(1, EPOCH_SPREAD)
        epochs = dict.fromkeys([*(batch.epoch for batch in state.batches), counting.epoch])
        later = {epoch: start + number for number, epoch in enumerate(epochs)}
        renewed = Counting(later[counting.epoch], counting.sequence)
        try:
            self._outbox.renew(state.name, [(batch, later[batch.epoch]) for batch in state.batches], renewed)
        except sqlite3.Error:
            return False
        state.counting = renewed
        state.has_renewed_epoch = True
        logger.warning("device %s: an earlier sender's epoch was later: continuing in a new epoch after it", state.name)
        return True

    def _pause_rejected(self, state: _Device, link: "_Link", reason: str) -> None:
        """Pause a device whose readings no shard accepts, and try again later."""
        if self.rejected.get(state.name) != reason:
            logger.warning("device %s: its readings are not accepted: %s", state.name, reason)
        self.rejected[state.name] = reason
        state.paused_until = time.monotonic() + self.rejected_seconds
        self.release(state, link)

    def _drain(self, drain: Drain, link: "_Link") -> None:
        for address in (*drain.peers, drain.target):
            self._remember(address)
        if not drain.devices:
            link.draining = True
            link.successor = drain.target
            if drain.target and drain.target != link.target:
                # Each device moves as soon as none of its batches is in flight here.
                for device in self._devices.values():
                    if (device.route or self._target) == link.target:
                        self._set_route(device, drain.target)
                self._link(drain.target)
            return
        for name in drain.devices:
            state = self._devices.get(name)
            if state is None:
                continue
            # The shard has already acknowledged everything that it analysed; the other one gets the rest.
            self.release(state, link)
            if (state.route or self._target) == link.target:  # else it has already moved, and this is a late answer
                self._set_route(state, drain.target)
        if drain.target:
            self._link(drain.target)

    def _set_route(self, state: _Device, target: str) -> None:
        """Send a device's batches to `target` from now on: the first time at once, then after growing pauses."""
        state.route = "" if target == self._target else target
        pause = state.moves.next() if state.moves.failures else 0.0
        state.moves.failures = max(state.moves.failures, 1)
        if pause:
            state.paused_until = time.monotonic() + pause

    def _remember(self, address: str) -> None:
        if not address or address == self._target:
            return
        self._known.pop(address, None)
        self._known[address] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def home(self, failures: int) -> str:
        """The address to dial after so many failures: the service and, in turn with it, a random known shard."""
        if failures % 2 == 0 or not self._known:
            return self._target
        return self._jitter.choice(list(self._known))

    def dial(self, address: str) -> grpc.aio.Channel:
        """A channel to a shard. OSError if the files of `tls` cannot be read."""
        return dial(address, self._tls, server_name=split_address(self._target)[0] if self._tls else "")

    def release(self, state: _Device, link: "_Link") -> None:
        """Forget that a device's batches are in flight on `link`: the shard has released the device."""
        link.calibrated.discard(state.name)
        if state.carrier is link:
            link.in_flight -= state.sent
            state.sent, state.carrier = 0, None

    def has_in_flight(self, link: "_Link") -> bool:
        """True if any batch is in flight on `link`."""
        return any(state.carrier is link for state in self._devices.values())

    def remove_link(self, link: "_Link") -> None:
        """Remove `link`, which is closed, and send its batches in flight again.

        Its devices are sent to the fleet's service, or to the same address if the shard's successor is there.
        """
        again = link.useful and link.successor == link.target
        for state in self._devices.values():
            self.release(state, link)
            if state.route == link.target and not again:
                self._set_route(state, "")
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
        self.successor = ""  # address of the process that replaces the shard
        self.useful = False  # something was acknowledged here
        self.calibrated: set[str] = set()
        self.wake = asyncio.Event()
        self._client = client
        self._jitter = jitter

    async def run(self) -> None:
        """Run the stream to the fleet's service until cancelled; one to another shard until it closes."""
        backoff = Backoff(floor=0.02, cap=5.0, jitter=self._jitter)
        failing = Condition(logger, begin=logging.INFO)
        while True:
            self.draining, self.successor, self.useful = False, "", False
            address = self._client.home(backoff.failures) if self.home else self.target
            try:
                async with (
                    self._client.dial(address) as link,
                    contextlib.aclosing(
                        converse(IngestStub(link).Stream(metadata=self._client.metadata), self._send)
                    ) as responses,
                ):
                    with no_stray_cancellation("the stream"):  # for example if the spool cannot be read now
                        async for response in responses:
                            self._client.handle_response(response, self)
                            backoff.reset()
                            if self.draining and not self._client.has_in_flight(self):
                                break
                reason = "drained" if self.draining else "the shard closed the stream"
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error)
            except UnrequestedCancellationError as error:
                reason = str(error)
            except OSError as error:  # certificates cannot be read now, for example while they are replaced
                reason = f"TLS: {error}"
            finally:
                self._client.remove_link(self)
            failing.fail(reason, "%s: %s, %d not acknowledged", address, reason, self._client.waiting)
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
    """Pack items with consecutive sequences into a batch; in columns if they are at least four readings."""
    batch = DeviceBatch(device=device, epoch=epoch)
    readings = [item for item in items if isinstance(item, Reading)]
    if len(readings) != len(items) or len(items) < 4:
        batch.readings.extend(readings)
        batch.frames.extend(item for item in items if isinstance(item, ThermalFrame))
        return batch
    columns = ReadingColumns(first_sequence=items[0].sequence, time_ns=[reading.time_ns for reading in readings])
    for name in ("smoke_adc", "flame_adc", "gas_adc", "flame_detected"):
        if any(reading.HasField(name) for reading in readings):
            values = [getattr(reading, name) if reading.HasField(name) else math.nan for reading in readings]
            getattr(columns, name).extend(values)
    batch.columns.CopyFrom(columns)
    return batch
