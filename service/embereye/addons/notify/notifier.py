"""Notifies people: follows the hub's events, steps the escalations, and serves each route with one sender.

Events are read from the feed by cursor. What an event changes and the new cursor become durable in one transaction, and
a delivery is removed only after its route accepted the message. A hub that is killed in between, or a standby that
takes over, therefore skips nothing; a route may get the message twice that was under way at that moment.

Each route has one sender, so that a slow service delays no other. While it sends, or within `fold` seconds after its
last message, news gathers and becomes one message. A failing route is tried again with a growing pause; the steps that
only it would have served are followed by the next ones at once.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Protocol

from embereye.addons.notify import links, replies
from embereye.addons.notify.calendars import Calendars
from embereye.addons.notify.incidents import ESCALATED, FOLLOW_UP, OPEN, OVER, Delivery, Incident, Incidents
from embereye.addons.notify.links import BadLinkError, Link
from embereye.addons.notify.messages import MAX_NAMES, Message, News, compose
from embereye.addons.notify.options import ALARM, FIRES, NORMAL, Canary, NotifyOptions, Route
from embereye.addons.notify.proof import CONFIRMED, UNCONFIRMED, Proofs, Reachable
from embereye.addons.notify.readers import Reader, View
from embereye.addons.notify.rows import Rows
from embereye.hub.access.keeper import add_entry
from embereye.hub.actions import Action
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.feeds.follow import follow
from embereye.hub.hub import Hub, RouteProof
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import EVERYWHERE, Principal, Role, Scope
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.webhooks.sender import Refusal
from embereye.levels import ZoneState
from embereye.process.condition import Condition
from embereye.process.tasks import run_together
from embereye.process.timing.backoff import Backoff
from embereye.units import SECOND, counted
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.sentences import duration
from embereye.zone.state import NotAllowedError

logger = logging.getLogger(__name__)
TICK_SECONDS = 0.5
CANARY_SECONDS = 1.0  # between two looks if a canary is due
STILL_SECONDS = 1.0  # that a message waits for its picture
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0  # between attempts of a failing route
DEAD_AFTER = 3  # failed attempts in a row after which a route counts as dead
RECENT = 10  # attempts that each route remembers
SPREAD = 0.4  # share of `fold` by which routes differ: if all sent at the same moment, a storm's alarms would wait
MAX_DEAD = 10_000  # dead letters; the oldest ones go first


class Sender(Protocol):
    """Sends the messages of one route."""

    def readers(self) -> Collection[Reader]:
        """The limits of those who get a version of each message; others get all of it."""

    async def send(self, message: Message) -> Refusal | None:
        """Make one attempt; None if the service accepted the message."""


@dataclass(frozen=True)
class Attempt:
    """An attempt to send a message."""

    time_ns: int  # by the wall clock
    title: str
    why: str = ""  # it failed; '': the service accepted the message
    zones: frozenset[tuple[str, str]] = frozenset()  # that it was about; empty: a test


@dataclass(eq=False)
class Outlet:
    """A route and its present state. Plain slots, read when metrics are scraped."""

    route: Route
    sender: Sender
    backoff: Backoff
    fold: float = 0.0  # seconds after a message in which news gathers
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    failing: Condition = field(default_factory=lambda: Condition(logger, begin=logging.ERROR, first_only=True))
    sent: int = 0  # messages that were accepted
    failed: int = 0  # failed attempts
    failures: int = 0  # failed attempts in a row
    given_up: int = 0  # deliveries
    sent_ns: int = 0  # of the latest message, by the wall clock; 0: none since the start
    recent: deque[Attempt] = field(default_factory=lambda: deque(maxlen=RECENT))  # the newest first
    quiet_until: float = 0.0  # monotonic seconds until which news gathers

    @property
    def is_dead(self) -> bool:
        """True if it failed several times in a row."""
        return self.failures >= DEAD_AFTER


class Notifier:
    """All of it. Call `restore` once, then let `run` run."""

    def __init__(
        self,
        options: NotifyOptions,
        hub: Hub,
        make_sender: Callable[[Route], Sender],
        *,
        backoff: Callable[[], Backoff] = lambda: Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS),
    ) -> None:
        book = hub.coverage.book
        routes = {name: replace(route, scope=route.scope.by(book)) for name, route in options.routes.items()}
        self.options = options = replace(options, routes=routes)
        self.rows = Rows(hub.committer)
        self.calendars = Calendars(options, self.rows, self.now_ns, self.local)
        self.incidents = Incidents(options, self._profile_of, self.calendars.on_duty)
        step = options.fold * SPREAD / max(1, len(options.routes))
        self.outlets = {
            name: Outlet(route, make_sender(route), backoff(), fold=options.fold - step * number)
            for number, (name, route) in enumerate(options.routes.items())
        }
        self.hub = hub
        self.proofs = Proofs(partial(self.rows.put, "proof"))
        self.codes = replies.Codes(lambda: self.rows)
        self._cursor = 0
        self._is_compared = False

    def _profile_of(self, namespace: str, zone: str) -> str:
        profile = self.hub.zones.profile_of((namespace, zone))
        return profile.name if profile else NORMAL

    # A part of the hub

    def restore(self, stored: StoredState) -> None:
        """Restore what was stored."""
        self.rows.restore(stored)
        self.calendars.restore()
        self.incidents.load(dict(self.rows.all("incident")), dict(self.rows.all("delivery")))
        cursor = self.rows.get("cursor", "")
        self._cursor = self.hub.feed.latest if cursor is None else min(int(cursor), self.hub.feed.latest)
        self.proofs.load(self.options.routes.values(), dict(self.rows.all("proof")), self.now_ns())
        if self.rows.get("key", "links") is None:
            self.rows.put("key", "links", links.new_key())
        for delivery in list(self.incidents.deliveries.values()):
            if delivery.route not in self.outlets or delivery.incident not in self.incidents.incidents:
                self.incidents.discard(delivery)  # its route is not declared any more
        self._store()

    def add_state(self, state: Transaction) -> None:
        """Add its whole state to `state`."""
        self.rows.add_state(state)

    # Time

    def now_ns(self) -> int:
        """The present time on the hub's timeline."""
        return self.hub.timeline.now_ns()

    def wall_ns(self) -> int:
        """The present time by the wall clock."""
        return self.now_ns() + self.hub.timeline.stepped_ns()

    def local(self) -> datetime:
        """The present time in the hub's time zone."""
        return self.options.local(self.wall_ns())

    def proved(self) -> dict[str, RouteProof]:
        """The latest canary message of each route."""
        now_ns, proofs = self.now_ns(), self.proofs
        return {
            name: RouteProof(
                proofs[name].sent_ns, proofs[name].confirmed_ns, proofs[name].state(outlet.route.canary, now_ns)
            )
            for name, outlet in self.outlets.items()
        }

    # Tasks

    async def run(self) -> None:
        """Follow the events and send until cancelled, or until the feed closes."""
        runs = [("notify-follow", self._follow()), ("notify-tick", self._tick())]
        runs += [(f"notify-calendar-{name}", self.calendars.follow(name)) for name in self.calendars.duties]
        for name, outlet in self.outlets.items():
            runs.append((f"notify-{name}", self._serve(outlet)))
            if outlet.route.canary:
                runs.append((f"notify-canary-{name}", self._prove(outlet, outlet.route.canary)))
        await run_together("notifications", *runs)

    async def _follow(self) -> None:
        async for batch in follow(self.hub.feed, self._cursor):
            for event in batch.events:
                self.incidents.apply(event, self.now_ns(), self.local())
            self._cursor = batch.cursor
            self._store()
            if batch.caught_up:
                self._compare_zones()

    def _compare_zones(self) -> None:
        """Once, after the start: open what burns and is unknown, and end what was reset while nobody listened."""
        if self._is_compared:
            return
        self._is_compared = True
        known, now_ns = set[str](), self.now_ns()
        for zone in self.hub.zones.messages():
            if zone.alarm:
                known.add(zone.alarm)
            if ZoneState(zone.state) is ZoneState.ALARM and f"alarm/{zone.alarm}" not in self.incidents.incidents:
                event = AlarmEvent(
                    type=AlarmEvent.TYPE_STATE, time_ns=zone.since_ns, namespace=zone.namespace, zone=zone.name,
                    alarm=zone.alarm, state=zone.state, why=zone.why, contributions=zone.contributions,
                )  # fmt: skip
                self.incidents.apply(event, now_ns, self.local())
        for incident in list(self.incidents.incidents.values()):
            if incident.alarm and incident.state != OVER and incident.alarm not in known:
                ended = AlarmEvent(
                    type=AlarmEvent.TYPE_STATE, time_ns=self.wall_ns(), namespace=incident.namespace,
                    zone=incident.zone, state=ZoneState.NORMAL.wire,
                )  # fmt: skip
                self.incidents.apply(ended, now_ns, self.local())
        self._store()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._hurry()
            self._store()
            for outlet in self.outlets.values():
                outlet.wake.set()  # quiet hours may be over

    def _hurry(self) -> None:
        """Begin the steps that are due, and those that follow a step whose routes all fail."""
        failing = {name for name, outlet in self.outlets.items() if outlet.failing}
        if failing:
            self.incidents.hurry(failing, self.now_ns(), self.local())
        else:
            self.incidents.pass_time(self.now_ns(), self.local())

    def _store(self) -> None:
        """Store all changes together, and wake the senders of new deliveries."""
        for kind, key, document in self.incidents.dump():
            self.rows.put(kind, key, document)
            if kind == "delivery" and document and not document["dead_ns"]:
                self.outlets[document["route"]].wake.set()
        self.rows.put("cursor", "", self._cursor)
        self.rows.commit()

    # Sending

    async def _serve(self, outlet: Outlet) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await outlet.wake.wait()
            outlet.wake.clear()
            while self._ready(outlet):
                if (wait := outlet.quiet_until - loop.time()) > 0:
                    await asyncio.sleep(wait)
                    continue
                await self._send(outlet, self._ready(outlet)[:MAX_NAMES])  # the others are in the next message

    def _ready(self, outlet: Outlet) -> list[News]:
        """The news that the route should get now."""
        at = self.local()
        return [
            News(incident, delivery)
            for delivery in self.incidents.pending(outlet.route.name)
            if (incident := self.incidents.incidents.get(delivery.incident))
            and not outlet.route.is_waiting(_urgency(delivery, incident), at)
        ]

    async def _send(self, outlet: Outlet, news: Sequence[News]) -> None:
        """Make one attempt to send one message with all `news`, and note its outcome."""
        name, loop = outlet.route.name, asyncio.get_running_loop()
        composed, states = self.wall_ns() // SECOND, [each.incident.state for each in news]
        notified = self._open_incidents(outlet.route)
        message = await self._compose(outlet, news, notified, composed)
        refusal = await outlet.sender.send(message)
        about = {each.incident.key: each.incident for each in news}
        if len(about) > 1:
            about |= {each.key: each for each in notified}
        zones = frozenset((each.namespace, each.zone) for each in about.values())
        self._note_attempt(outlet, message, refusal, zones)
        if refusal is None:
            for each, state in zip(news, states, strict=True):
                self.incidents.note_delivered(each.delivery, composed, state, self.now_ns())
            self._store()
            outlet.quiet_until = loop.time() + outlet.fold
            return
        now_ns = self.now_ns()
        for each in news:
            is_late = now_ns - each.delivery.made_ns > outlet.route.give_up * SECOND
            self.incidents.note_failed(each.delivery, refusal.why, dead_ns=now_ns if is_late else 0)
            if is_late:
                outlet.given_up += 1
                logger.error(
                    "route %s: the message about %s is given up after %s: %s",
                    name, each.incident.title, counted(each.delivery.attempts, "attempt"), refusal.why,
                )  # fmt: skip
        self._drop_oldest_dead()
        self._hurry()
        self._store()
        outlet.quiet_until = loop.time() + max(outlet.backoff.next(), refusal.wait)

    def _note_attempt(
        self, outlet: Outlet, message: Message, refusal: Refusal | None, zones: frozenset[tuple[str, str]] = frozenset()
    ) -> None:
        outlet.recent.appendleft(Attempt(self.wall_ns(), message.title, refusal.why if refusal else "", zones))
        if refusal is None:
            outlet.sent += 1
            outlet.failures = 0
            outlet.sent_ns = self.wall_ns()
            outlet.backoff.reset()
            outlet.failing.clear("route %s delivers again", outlet.route.name)
            return
        outlet.failed += 1
        outlet.failures += 1
        outlet.failing.fail(refusal.why, "route %s fails: %s", outlet.route.name, refusal.why)

    def _drop_oldest_dead(self) -> None:
        dead = self.incidents.dead()
        for delivery in sorted(dead, key=lambda each: each.dead_ns)[: max(0, len(dead) - MAX_DEAD)]:
            self.incidents.discard(delivery)

    def _open_incidents(self, route: Route) -> list[Incident]:
        """The incidents that the route was notified of and nobody has acknowledged."""
        return [
            incident
            for incident in self.incidents.incidents.values()
            if incident.state == OPEN and route.name in incident.notified
        ]

    async def _compose(self, outlet: Outlet, news: Sequence[News], notified: Sequence[Incident], now: int) -> Message:
        route = outlet.route
        still = await self._still(news) if route.still else b""
        link = self._acknowledge_link(route, [each.incident for each in news], notified, now)
        message = compose(news, notified, self.local(), still=still, link=link, console=self.options.public_url)
        versions = {
            reader: self._version(route, reader, visible, notified, now)
            for reader in outlet.sender.readers()
            if (visible := [each for each in news if self.view(reader.scope).has_incident(each.incident)])
        }
        return replace(self._with_code(route, message), versions=versions)

    def _version(
        self, route: Route, reader: Reader, news: Sequence[News], notified: Sequence[Incident], now: int
    ) -> Message:
        """The message about `news` for `reader`. Its link names each of its alarms, or there is none."""
        visible = [incident for incident in notified if self.view(reader.scope).has_incident(incident)]
        link = ""
        if reader.may_act:
            link = self._acknowledge_link(route, [each.incident for each in news], visible, now, is_limited=True)
        return compose(news, visible, self.local(), still=b"", link=link, console=self.options.public_url)

    def _with_code(self, route: Route, message: Message) -> Message:
        """Give a message that can be answered a code in place of its link."""
        if not route.replies or not message.link:
            return message
        token = message.link.rpartition("/")[2]
        link = links.read(token, self.rows.get("key", "links"), self.wall_ns() / SECOND)
        code = self.codes.make(route.name, token, link.until, self.wall_ns() / SECOND)
        return replace(message, code=code, console="")

    async def _still(self, news: Sequence[News]) -> bytes:
        """The picture of the first fire that has one; empty if there is none, or not in time."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STILL_SECONDS):
                for each in news[:3]:
                    for device, kind in each.incident.pictures:
                        if picture := await self.hub.history.picture(each.incident.alarm, device, kind):
                            return picture
        return b""

    # Proofs

    async def _prove(self, outlet: Outlet, canary: Canary) -> None:
        """Send canaries at their interval."""
        name = outlet.route.name
        while True:
            if self.proofs[name].is_due(canary, self.now_ns()):
                message = self._canary_message(outlet.route, canary)
                refusal = await outlet.sender.send(message)
                self._note_attempt(outlet, message, refusal)
                if refusal is None:
                    self.proofs.note_sent(name, self.now_ns())
                    if not canary.by_person:
                        self.proofs.note_confirmed(name, self.now_ns())
                    self.rows.commit()
                else:
                    await asyncio.sleep(max(outlet.backoff.next(), refusal.wait))
            await asyncio.sleep(CANARY_SECONDS)

    def _canary_message(self, route: Route, canary: Canary) -> Message:
        if not canary.by_person:
            return Message("EmberEye: this route works", "A regular test. You need not do anything.", "info")
        now = self.wall_ns() // SECOND
        link = Link(links.CONFIRM, route.name, now + int(canary.every + canary.within), (), now, Role.VIEWER)
        body = (
            f"A regular test of the route {route.name}. Please confirm that you received it, within "
            f"{duration(int(canary.within * SECOND))}."
        )
        message = Message("EmberEye: please confirm", body, "info", link=self._address(link))
        return self._with_code(route, message)

    def reachable(self, view: View | None = None) -> Reachable:
        """Say how many routes reach people, of those in `view`."""
        now_ns, confirmed, problems, oldest_ns = self.now_ns(), 0, [], 0
        view = view or View(self, EVERYWHERE)
        for name, outlet in view.outlets.items():
            proof = self.proofs[name]
            if outlet.is_dead:
                problems.append(f"route {name} is dead: {outlet.failing.why}")
            elif (state := proof.state(outlet.route.canary, now_ns)) == UNCONFIRMED:
                since = duration(now_ns - (proof.confirmed_ns or proof.began_ns))
                problems.append(f"route {name}: nobody has confirmed for {since}")
            elif state == CONFIRMED:
                confirmed += 1
                oldest_ns = max(oldest_ns, now_ns - proof.confirmed_ns)
        reached = len(view.outlets) - len(problems)
        if not view.outlets:
            problems.append("no route is for these zones")
        problems += self.calendars.problems(view.duties)
        return Reachable(len(view.outlets), reached, confirmed, tuple(problems), oldest_ns)

    # Links

    def _address(self, link: Link) -> str:
        """The address of a link; '' if nobody knows the hub's address."""
        if not self.options.public_url:
            return ""
        return f"{self.options.public_url}/n/{links.sign(link, self.rows.get('key', 'links'))}"

    def _acknowledge_link(
        self,
        route: Route,
        news: Sequence[Incident],
        notified: Sequence[Incident],
        now: int,
        *,
        is_limited: bool = False,
    ) -> str:
        """The address that acknowledges the fires of a message; '' if there is none to acknowledge, or no address.

        One that `is_limited` covers only alarms that it names; '' if these are too many.
        """
        fires = [incident for incident in news if incident.state == OPEN and incident.occasion in FIRES]
        if not route.acknowledge or not fires:
            return ""
        keys = tuple(dict.fromkeys(incident.key for incident in fires))
        if is_limited and len(keys) > links.MAX_ALARMS:
            return ""
        if not is_limited and (len(keys) > links.MAX_ALARMS or (len(keys) > 1 and notified)):
            keys = ()
        return self._address(Link(links.ACKNOWLEDGE, route.name, now + int(self.options.link_life), keys, now))

    def open_link(self, token: str) -> tuple[Link, list[Incident]]:
        """Check a link; return it and the fires that it acknowledges. BadLinkError."""
        link = links.read(token, self.rows.get("key", "links"), self.wall_ns() / SECOND)
        if used := self.rows.get("used", link.nonce):
            raise BadLinkError(f"This link was used already, by {used['who']}.")
        keys = link.incidents or [
            incident.key
            for incident in self.incidents.incidents.values()
            if link.route in incident.notified and incident.notified[link.route][1] <= link.made
        ]
        if link.purpose == links.CONFIRM:
            return link, []
        fires = [self.incidents.incidents[key] for key in keys if key in self.incidents.incidents]
        return link, [incident for incident in fires if incident.occasion in FIRES and incident.state != OVER]

    async def use_link(self, token: str, who: str, address: str, by_what: str = "the link in") -> list[str]:
        """Do what a link permits, once; return a sentence for each outcome. BadLinkError, StoreFailingError.

        `who` is the name that the person gives, and `address` is where the request came from.
        """
        link, incidents = self.open_link(token)
        by = Principal(f"link to {link.route}", link.role, "", address)
        self._note_used(link, {"who": by.acting_as(who), "until": link.until})
        try:
            if link.purpose == links.CONFIRM:
                return [await self._confirm(link, by, who)]
            note = f"by {by_what} a message to {link.route}"
            return [await self._acknowledge(incident, by, who, note) for incident in incidents]
        except StoreFailingError:
            self._note_used(link, None)
            raise

    def _note_used(self, link: Link, document: object) -> None:
        now = self.wall_ns() // SECOND
        for nonce, used in list(self.rows.all("used")):
            if used["until"] < now:
                self.rows.put("used", nonce, None)
        self.rows.put("used", link.nonce, document)
        self.rows.commit()

    async def _confirm(self, link: Link, by: Principal, who: str) -> str:
        subject, detail = link.route, by.acting_as(who)
        await self.hub.committer.commit(lambda draft: add_entry(draft, by, "confirm route", subject, detail))
        if link.route in self.outlets:
            self.proofs.note_confirmed(link.route, self.now_ns())
            self.rows.commit()
        return "Thank you. The route works."

    async def _acknowledge(self, incident: Incident, by: Principal, who: str, note: str) -> str:
        if incident.state != OPEN:
            return f"{incident.title}: was acknowledged by {incident.who or 'somebody'}."
        try:
            await self.hub.actions.perform(Action.ACKNOWLEDGE, by, incident.namespace, incident.zone, who, note)
        except (NotAllowedError, UnknownNameError) as error:
            return f"{incident.title}: {error}"
        return f"{incident.title}: acknowledged."

    # Requests by people

    def view(self, scope: Scope) -> View:
        """The share of it all that somebody with `scope` sees."""
        return View(self, scope)

    async def test(self, name: str, by: str) -> Refusal | None:
        """Send a test message by the route called `name`; None if the service accepted it. UnknownNameError."""
        outlet = self.view(EVERYWHERE).find(name)
        at = f"{self.local():%Y-%m-%d %H:%M:%S}"
        body = f"{by} tests this route at {at}. Nothing burns."
        message = Message("EmberEye: test message", body, "info", console=self.options.public_url)
        refusal = await outlet.sender.send(message)
        self._note_attempt(outlet, message, refusal)
        return refusal

    def resend(self, route: str = "", scope: Scope = EVERYWHERE) -> int:
        """Send dead letters about zones in `scope` again, of one route or of all; return their number.

        UnknownNameError if there is no such route.
        """
        view, now_ns = self.view(scope), self.now_ns()
        if route:
            view.find(route)
        dead = view.visible(self.incidents.dead(route))
        for delivery in dead:
            self.incidents.revive(delivery, now_ns)
        self._store()
        return len(dead)


def _urgency(delivery: Delivery, incident: Incident) -> str:
    """The occasion by which quiet hours judge a message. A person who escalates is as urgent as an alarm."""
    if delivery.news == ESCALATED:
        return ALARM
    return incident.occasion if delivery.step == FOLLOW_UP else delivery.news
