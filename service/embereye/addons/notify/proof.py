"""Proofs that routes reach people: canary messages at an interval, confirmed by a person's tap or by the service.

`Proofs` keeps for each route when its latest canary was sent and when one was confirmed. Times are on the hub's
timeline, so that a clock that is set proves nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from embereye.addons.notify.options import Canary, Route
from embereye.units import SECOND
from embereye.zone.sentences import duration

CONFIRMED, WAITING, UNCONFIRMED, UNPROVED = "confirmed", "waiting", "unconfirmed", "unproved"


@dataclass
class Proof:
    """The proof of one route."""

    began_ns: int  # since when the route is to be proved
    sent_ns: int = 0  # of the latest canary; 0: none
    confirmed_ns: int = 0  # of the latest confirmation; 0: none

    def is_due(self, canary: Canary, now_ns: int) -> bool:
        """True if the next canary has to be sent."""
        return not self.sent_ns or now_ns - self.sent_ns >= canary.every * SECOND

    def state(self, canary: Canary | None, now_ns: int) -> str:
        """Say if the route is proved at `now_ns`."""
        if canary is None:
            return UNPROVED
        if self.confirmed_ns and self.confirmed_ns >= self.sent_ns:
            late_ns = (canary.every + canary.within) * SECOND
            return CONFIRMED if now_ns - self.confirmed_ns <= late_ns else UNCONFIRMED
        if now_ns - (self.sent_ns or self.began_ns) <= canary.within * SECOND:
            return CONFIRMED if self.confirmed_ns else WAITING
        return UNCONFIRMED


class Proofs:
    """The proofs of all routes."""

    def __init__(self, store: Callable[[str, Any], None]) -> None:
        """`store` takes a route's name and its document."""
        self._store = store
        self._proofs: dict[str, Proof] = {}

    def load(self, routes: Iterable[Route], documents: dict[str, Any], now_ns: int) -> None:
        """Restore the proofs of `routes`; a new one has to be proved from now on."""
        for route in routes:
            document = documents.get(route.name)
            self._proofs[route.name] = Proof(**document) if document else Proof(now_ns)
            if not document and route.canary:
                self._store(route.name, asdict(self._proofs[route.name]))

    def __getitem__(self, route: str) -> Proof:
        return self._proofs[route]

    def note_sent(self, route: str, now_ns: int) -> None:
        """Note that a canary was sent."""
        self._proofs[route].sent_ns = now_ns
        self._store(route, asdict(self._proofs[route]))

    def note_confirmed(self, route: str, now_ns: int) -> None:
        """Note that somebody, or the service, confirmed a canary."""
        self._proofs[route].confirmed_ns = now_ns
        self._store(route, asdict(self._proofs[route]))


@dataclass(frozen=True)
class Reachable:
    """The state of all routes."""

    routes: int
    reached: int  # neither dead nor unconfirmed
    confirmed: int  # by a canary
    problems: tuple[str, ...]  # a sentence for each route that does not
    oldest_ns: int  # age of the oldest confirmation that counts

    @property
    def sentence(self) -> str:
        """The state in one sentence."""
        if self.problems:
            return "; ".join(self.problems)
        if self.confirmed:
            rest = f", {self.routes - self.confirmed} not proved" if self.confirmed < self.routes else ""
            return f"{self.confirmed} of {self.routes} routes confirmed within {duration(self.oldest_ns)}{rest}"
        return f"{self.routes} routes, none of them proved by a canary"
