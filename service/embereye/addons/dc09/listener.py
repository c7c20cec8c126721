"""Fire panels that report here: their alarms become evidence of zones.

A panel's fire alarm is a sign of the device "NAME-zone-NUMBER". The panel gets its ACK only once the hub has committed
the sign. A sign lasts until the panel restores it, however long, so it is stored and reported again every
RENEW_SECONDS, also after a restart. Troubles, tests and other messages are acknowledged and counted.

Frames that are damaged, of unknown accounts, or without the account's encryption get no answer at all. A wrong time
stamp gets NAK with the hub's time, a format that is not understood DUH. A connection that sends only such bytes is
closed after MAX_BAD of them, and an address may open MAX_PER_MINUTE connections a minute.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from embereye.addons.dc09.codes import RESTORED_SIA, SIGNS_CID, SIGNS_SIA
from embereye.addons.dc09.exchange import read_frame
from embereye.addons.dc09.frames import (
    EARLY_SECONDS,
    LATE_SECONDS,
    MAX_FRAME,
    FrameError,
    account_of,
    answer_frame,
    parse_message,
)
from embereye.addons.dc09.options import AccountOptions, ListenOptions, read_key
from embereye.addons.dc09.tables import Documents
from embereye.hub.committer import Draft, Step
from embereye.hub.hub import Hub
from embereye.levels import Kind, Level, Sense
from embereye.process.addresses import is_in_networks
from embereye.process.admission import Admission
from embereye.process.condition import Condition
from embereye.process.tasks import raise_if_cancelled, run_together
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term

logger = logging.getLogger(__name__)
OWNER = "/listen"  # of the stored signs; no station can have this name
RENEW_SECONDS = 10.0  # a sign counts for 30 s after its last report
RETRY_SECONDS = 5.0  # between attempts to listen
IDLE_SECONDS = 120.0  # after which a silent connection is closed
COMMIT_SECONDS = 10.0  # how long a panel waits for its ACK; it repeats the message without one
MAX_BAD = 5  # useless frames on one connection
MAX_CONNECTIONS = 256
MAX_PER_MINUTE = 120  # connections of one address
MAX_ADDRESSES = 1_000  # whose connections are counted
OUTCOMES = ("sign", "restored", "other", "poll", "damaged", "unknown", "late", "rejected", "unstored")


@dataclass(frozen=True)
class PanelSign:
    """A panel's alarm that it has not restored."""

    account: str
    zone: int  # the panel's number
    kind: int
    since_ns: int  # wall clock

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"sign/{self.account}/{self.zone}/{self.kind}"


@dataclass(frozen=True)
class PanelEvent:
    """The news of one message about one zone of a panel."""

    zone: int
    kind: Kind
    restored: bool


class Listener:
    """Listens for panels until cancelled."""

    def __init__(self, hub: Hub, rows: Documents, options: ListenOptions) -> None:
        self._hub = hub
        self._rows = rows
        self._options = options
        self._signs: dict[str, PanelSign] = {}
        for document in rows.of_owner(OWNER).values():
            with contextlib.suppress(TypeError):
                sign = PanelSign(**document)
                self._signs[sign.name] = sign
        self._open: Admission[asyncio.StreamWriter] = Admission(MAX_CONNECTIONS)
        self._recent: OrderedDict[str, list[float]] = OrderedDict()  # times of connections, by address
        self.counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.failing = Condition(logger, begin=logging.ERROR)
        self.port = options.port

    async def run(self) -> None:
        """Listen, and renew open signs, until cancelled."""
        await run_together("DC-09", ("dc09-accept", self._listen()), ("dc09-renew", self._renew()))

    async def _listen(self) -> None:
        host, port = self._options.host, self._options.port
        while True:
            try:
                server = await asyncio.start_server(self._serve, host, port, limit=MAX_FRAME)
            except OSError as error:
                why = f"cannot listen at {host}:{port}: {error.strerror or error}"
                self.failing.fail(why, "DC-09: %s; trying again", why)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.failing.clear()
            logger.info("DC-09: panels can report at %s:%d", host, port)
            async with server:
                await server.serve_forever()

    # Connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if not (self._is_allowed(address) and self._open.admit(writer)):
            self.counts["rejected"] += 1
            writer.close()
            return
        try:
            await self._answer_all(reader, writer)
        except (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            raise_if_cancelled()
            self._open.forget(writer)
            writer.close()

    def _is_allowed(self, address: str) -> bool:
        allow = self._options.allow
        if allow and not is_in_networks(address, allow):
            return False
        now = time.monotonic()
        times = [at for at in self._recent.pop(address, []) if at > now - 60]
        self._recent[address] = [*times, now][-MAX_PER_MINUTE:]
        if len(self._recent) > MAX_ADDRESSES:
            self._recent.popitem(last=False)
        return len(times) < MAX_PER_MINUTE

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bad = 0
        while bad < MAX_BAD:
            async with asyncio.timeout(IDLE_SECONDS):
                frame = await read_frame(reader)
            answer = await self._handle(frame)
            if answer is None:
                bad += 1
                continue
            writer.write(answer)
            await writer.drain()

    async def _handle(self, frame: bytes) -> bytes | None:
        """Process one frame; returns the answer, None for none."""
        try:
            account = self._options.accounts.get(account_of(frame))
            if account is None:
                self.counts["unknown"] += 1
                return None
            key = read_key(account.key_file)
            message = parse_message(frame, key)
            if key and not message.encrypted:
                raise FrameError("it is not encrypted")
        except (FrameError, ValueError, OSError) as error:
            self.counts["damaged"] += 1
            logger.debug("DC-09: a frame is not acknowledged: %s", error)
            return None
        return await self._process(account, message, frame, key)

    async def _process(self, account: AccountOptions, message: Any, frame: bytes, key: str) -> bytes | None:
        if self._is_late(message):
            self.counts["late"] += 1
            return self._answer(frame, message, "NAK", key)
        if message.idtoken in ("NULL", "XNM"):
            self.counts["poll"] += 1
            return self._answer(frame, message, "ACK", key)
        if (
            message.idtoken not in ("SIA-DCS", "ADM-CID")
            or message.data is None
            or not hasattr(message.data, "__dict__")
        ):
            self.counts["other"] += 1
            return self._answer(frame, message, "DUH", key)
        for event in events_of(message):
            if not await self._commit(account, event):
                self.counts["unstored"] += 1
                return None  # the panel sends it again
        return self._answer(frame, message, "ACK", key)

    def _is_late(self, message: Any) -> bool:
        """True if an encrypted message has no time stamp, or one outside the window: it may be a recorded one."""
        if not message.encrypted:
            return False
        if message.timestamp is None:
            return True
        ahead = message.timestamp.timestamp() - self._hub.timeline.wall_ns() / SECOND
        return not -LATE_SECONDS <= ahead <= EARLY_SECONDS

    def _answer(self, request: bytes, message: Any, kind: str, key: str) -> bytes:
        return answer_frame(kind, request, int(message.seq), key, self._hub.timeline.wall_ns())

    # Signs

    async def _commit(self, account: AccountOptions, event: PanelEvent) -> bool:
        """Make `event` durable; False if that takes too long."""
        sign = PanelSign(account.account, event.zone, int(event.kind), self._hub.timeline.wall_ns())
        known = self._signs.get(sign.name)
        if event.restored:
            self.counts["restored"] += 1
            if known is None:
                return True
            return await self._report(known, Level.CLEAR)
        self.counts["sign"] += 1
        return await self._report(known or sign, Level.ALARM)

    async def _report(self, sign: PanelSign, level: Level) -> bool:
        """Report `sign`, and store or remove its row in the same batch; False if it is not durable in time."""
        item = self._item(sign, level)
        if item is None:
            return True
        if not self._hub.inbox.has_room():
            self._hub.inbox.show_unstored(item)
            return False
        durable = asyncio.Event()
        self._hub.inbox.admit(item, lambda _: durable.set())
        is_open = level > Level.CLEAR

        def step(draft: Draft) -> None:
            document = dict(sign.__dict__) if is_open else None
            self._rows.put_document(draft, OWNER, sign.name, document)

        self._hub.committer.enqueue(Step(step))
        if is_open:
            self._signs[sign.name] = sign
        else:
            self._signs.pop(sign.name, None)
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await durable.wait()
        except TimeoutError:
            return False
        return True

    async def _renew(self) -> None:
        while True:
            for sign in list(self._signs.values()):
                if (item := self._item(sign, Level.ALARM)) and self._hub.inbox.has_room():
                    self._hub.inbox.admit(item, lambda _: None)
            await asyncio.sleep(RENEW_SECONDS)

    def _item(self, sign: PanelSign, level: Level) -> EvidenceItem | None:
        """The report of a sign; None if the account is not declared any more."""
        account = self._options.accounts.get(sign.account)
        where = account and (account.zones.get(sign.zone) or account.zones.get(0))
        if not account or not where:
            return None
        namespace, _, zone = where.rpartition("/")
        now_ns, device = self._hub.timeline.now_ns(), f"{account.name}-zone-{sign.zone}"
        return EvidenceItem(
            id=f"dc09-{sign.account}-{sign.zone}-{sign.kind}-{now_ns}", episode=f"{device}-{sign.kind}-{sign.since_ns}",
            fleet=f"{namespace or 'default'}/sensors/panels", device=device, zone=zone, kind=Kind(sign.kind).wire,
            sense=Sense.SENSOR.wire, level=level.wire, score=1.0, since_ns=sign.since_ns, until_ns=now_ns,
            why=[Term(name="panel alarm", value=1)], note=f"reported by the panel {account.name}, its zone {sign.zone}",
        )  # fmt: skip


def events_of(message: Any) -> Iterable[PanelEvent]:
    """Yield the fire alarms and their restores in a message of siadc09; nothing for other events."""
    if (event := getattr(message.data, "event", None)) is not None:
        if kind := SIGNS_CID.get(str(event.code)):
            yield PanelEvent(_number(event.addr), kind, str(event.qualifier) == "3")
        return
    for block in getattr(message.data, "blocks", ()):
        for event in getattr(block, "events", ()):
            if kind := SIGNS_SIA.get(str(event.code)):
                yield PanelEvent(_number(event.addr), kind, False)
            elif kind := RESTORED_SIA.get(str(event.code)):
                yield PanelEvent(_number(event.addr), kind, True)


def _number(address: object) -> int:
    """The number that panels print: siadc09 reads its digits as hexadecimal."""
    digits = f"{address:X}" if isinstance(address, int) else str(address or 0)
    return int(digits) if digits.isdecimal() else 0
