"""One monitoring station: follows the hub's events, and has each message acknowledged by a receiver.

Two tasks share the queue. The first turns events into messages and stores them; the second sends the most urgent one
until a receiver acknowledges it. Each receiver gets the configured attempts, then the next one is tried; after the last
one, sending pauses. A third task per receiver sends supervision messages. An event that cannot be stored for now is
sent at once, from memory.

A receiver that refuses a time stamp (NAK) sends its own clock: from then on this station's messages use it. A message
that every receiver refuses as such (DUH) is given up and counted, as repeating it is useless.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from embereye.addons.dc09.exchange import NoAnswerError, exchange
from embereye.addons.dc09.frames import Answer, Content, FrameError, event_frame, poll_frame
from embereye.addons.dc09.options import Receiver, StationOptions, read_key
from embereye.addons.dc09.queue import Message, Queue
from embereye.addons.dc09.tables import Documents
from embereye.hub.committer import Draft, Step
from embereye.hub.feeds.follow import follow
from embereye.hub.hub import Hub
from embereye.process.condition import Condition
from embereye.process.tasks import run_together
from embereye.process.timing.backoff import Backoff
from embereye.units import SECOND

logger = logging.getLogger(__name__)
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 2.0, 30.0  # after a round over all receivers that failed
REPEATED_NAKS = 2  # of one message at one attempt


class RefusedError(Exception):
    """The receiver cannot process the message, and never will (DUH)."""


class Station:
    """One station. `run` it until cancelled."""

    def __init__(
        self, hub: Hub, rows: Documents, options: StationOptions,
        *, backoff: Callable[[], Backoff] = lambda: Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS),
    ) -> None:  # fmt: skip
        self.options = options
        self._hub = hub
        self._rows = rows
        self._backoff = backoff
        self.queue = Queue(options, rows.of_owner(options.name))
        self._added = asyncio.Event()
        self._offset_ns = 0  # how far the station's clock is ahead
        self.counts: Counter[str] = Counter()  # messages by outcome
        self.failing = {receiver: Condition(logger, begin=logging.ERROR) for receiver in options.receivers}

    @property
    def waiting_ns(self) -> int:
        """The age of the oldest waiting message; 0 if none waits."""
        oldest = min((message.occurred_ns for message in self.queue.waiting.values()), default=None)
        return 0 if oldest is None else max(0, self._hub.timeline.wall_ns() - oldest)

    async def run(self) -> None:
        """Serve the station until cancelled."""
        name, polled = self.options.name, self.options.receivers if self.options.poll else ()
        polls = [(f"dc09-poll-{name}", self._poll(receiver)) for receiver in polled]
        await run_together("DC-09", (f"dc09-{name}", self._follow()), (f"dc09-send-{name}", self._send()), *polls)

    # Events into messages

    async def _follow(self) -> None:
        feed = self._hub.feed
        if self.queue.cursor < 0:
            self._store(self.queue.advance(feed.latest))
        async for batch in follow(feed, self.queue.cursor):
            changes: dict[str, object] = {}
            for event in batch.events:
                changes |= self.queue.add(event)
            if changes or batch.cursor != self.queue.cursor:
                self._store(changes | self.queue.advance(batch.cursor))
            self._added.set()

    def _store(self, changes: dict[str, object]) -> None:
        def step(draft: Draft) -> None:
            for name, document in changes.items():
                self._rows.put_document(draft, self.options.name, name, document)

        self._hub.committer.enqueue(Step(step))

    # Messages to receivers

    async def _send(self) -> None:
        backoff = self._backoff()
        while True:
            message = self.queue.next()
            if message is None:
                self._added.clear()
                await self._added.wait()
                continue
            if await self._deliver(message):
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next())

    async def _deliver(self, message: Message) -> bool:
        """Have `message` acknowledged; False if no receiver answers. A message that all refuse is given up."""
        refused = 0
        receivers = sorted(self.options.receivers, key=lambda receiver: bool(self.failing[receiver]))
        for receiver in receivers:
            for _ in range(self.options.attempts):
                try:
                    await self._exchange(receiver, message)
                except RefusedError:
                    refused += 1
                    break
                except (NoAnswerError, FrameError, ValueError, OSError) as error:
                    self.counts["repeated"] += 1
                    self._note_failing(receiver, str(error))
                else:
                    self._finish(message, "acknowledged")
                    return True
        if refused == len(receivers):
            logger.error("station %s: no receiver can process message %d: %s %s, zone %d: given up. Correct its code.",
                         self.options.name, message.sequence, message.subject,
                         "restored" if message.restored else "began", message.zone)  # fmt: skip
            self._finish(message, "refused")
            return True
        return False

    def _finish(self, message: Message, outcome: str) -> None:
        self.counts[outcome] += 1
        self._store(self.queue.remove(message))

    async def _exchange(self, receiver: Receiver, message: Message | None) -> None:
        """Send `message`, or a supervision message; NoAnswerError or RefusedError unless it is acknowledged."""
        for _ in range(REPEATED_NAKS + 1):
            answer = await self._attempt(receiver, message)
            if answer.kind == "ACK":
                self.failing[receiver].clear("station %s: receiver %s answers again", self.options.name, receiver)
                return
            if answer.kind == "DUH":
                raise RefusedError
            if answer.time_ns is None:
                break
            self._set_clock(answer.time_ns)
        raise NoAnswerError("it refuses the time stamp (NAK)")

    async def _attempt(self, receiver: Receiver, message: Message | None) -> Answer:
        options, now_ns = self.options, self._hub.timeline.wall_ns() + self._offset_ns
        key = read_key(options.key_file)
        if message is None:
            frame, sequence = poll_frame(options, key, now_ns), 0
        else:
            content = Content(options.codes[message.subject], message.restored, message.zone, message.text,
                              message.occurred_ns)  # fmt: skip
            frame, sequence = event_frame(options, message.sequence, content, key, now_ns), message.sequence
        return await exchange(receiver, frame, sequence, key, options.timeout)

    def _set_clock(self, time_ns: int) -> None:
        offset_ns = time_ns - self._hub.timeline.wall_ns()
        if abs(offset_ns - self._offset_ns) > SECOND:
            logger.warning("station %s: its clock is %.0f s ahead of this hub's; its messages use it",
                           self.options.name, offset_ns / SECOND)  # fmt: skip
        self._offset_ns = offset_ns

    def _note_failing(self, receiver: Receiver, why: str) -> None:
        self.failing[receiver].fail(why, "station %s: receiver %s: %s; trying again", self.options.name, receiver, why)

    # Supervision

    async def _poll(self, receiver: Receiver) -> None:
        while True:
            try:
                await self._exchange(receiver, None)
                self.counts["polled"] += 1
            except RefusedError:
                self._note_failing(receiver, "it cannot process supervision messages (DUH): set pollSeconds: 0")
            except (NoAnswerError, FrameError, ValueError, OSError) as error:
                self._note_failing(receiver, str(error))
            await asyncio.sleep(self.options.poll)
