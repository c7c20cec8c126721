"""The shares of notifications that people with limits read.

A person may be limited to zones and fleets (`Scope`). They see the routes that can get news about a zone of theirs, the
news about their zones, and who would be notified of them. A browser that they subscribed gets these news only.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from embereye.addons.notify.incidents import Delivery, Incident
from embereye.addons.notify.options import Duty, Escalation
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import EVERYWHERE, Scope

if TYPE_CHECKING:
    from embereye.addons.notify.notifier import Attempt, Notifier, Outlet

EVERY_FLEET = re.compile(".*")


@dataclass(frozen=True)
class Reader:
    """The limits of somebody who reads messages."""

    scope: Scope = EVERYWHERE
    may_act: bool = True  # acknowledge by the link of a message

    @property
    def is_limited(self) -> bool:
        """True if messages for everybody are not for them."""
        return self.scope.is_limited or not self.may_act


@dataclass(frozen=True)
class View:
    """The notifications of the zones in `scope`. Make one for each request."""

    notifier: "Notifier"
    scope: Scope

    @cached_property
    def _zones(self) -> Collection[tuple[str, str]]:
        """The zones in the scope that have devices or a state."""
        hub = self.notifier.hub
        known = hub.coverage.book.zones_of(EVERY_FLEET) | hub.zones.states().keys()
        return [zone for zone in known if self.scope.has_zone(*zone)]

    @cached_property
    def escalations(self) -> Collection[Escalation]:
        """The escalations for these zones; their steps and patterns name nothing of others."""
        options = self.notifier.options
        if not self.scope.is_limited:
            return options.escalations
        return [self._part(each) for each in options.escalations if any(each.has_zone(*zone) for zone in self._zones)]

    def _part(self, escalation: Escalation) -> Escalation:
        """The part of `escalation` that is about these zones."""
        names = {*self._routes, *(name for name, duty in self._all_duties.items() if duty.all_routes & self._routes)}
        steps = [replace(step, routes=[name for name in step.routes if name in names]) for step in escalation.steps]
        patterns = [
            pattern
            for pattern in escalation.zones
            if any(replace(escalation, zones=(pattern.removeprefix("!"),)).has_zone(*zone) for zone in self._zones)
        ]
        return replace(escalation, steps=[step for step in steps if step.routes], zones=patterns or ("*",))

    @property
    def _all_duties(self) -> Mapping[str, Duty]:
        return self.notifier.options.duties

    @cached_property
    def _routes(self) -> frozenset[str]:
        options = self.notifier.options
        if not self.scope.is_limited:
            return frozenset(options.routes)
        return frozenset(
            route
            for escalation in options.escalations
            for route in options.routes_of(escalation)
            if any(options.is_for(route, *zone) and escalation.has_zone(*zone) for zone in self._zones)
        )

    @property
    def outlets(self) -> Mapping[str, "Outlet"]:
        """The routes that can get news about these zones, in the order of their declaration."""
        return {name: outlet for name, outlet in self.notifier.outlets.items() if name in self._routes}

    @property
    def duties(self) -> Mapping[str, Duty]:
        """The duties that these escalations use."""
        if not self.scope.is_limited:
            return self._all_duties
        used = {name for escalation in self.escalations for step in escalation.steps for name in step.routes}
        return {name: duty for name, duty in self._all_duties.items() if name in used}

    def find(self, name: str) -> "Outlet":
        """Return the route called `name`; UnknownNameError."""
        if name not in self.outlets:
            listed = f"There are {', '.join(self.outlets)}." if self.outlets else "There is none for your zones."
            raise UnknownNameError(f'no route "{name[:80]}" is declared. {listed}')
        return self.outlets[name]

    def has_incident(self, incident: Incident) -> bool:
        """True if `incident` is in one of these zones."""
        return self.scope.has_zone(incident.namespace, incident.zone)

    def visible(self, deliveries: Collection[Delivery]) -> list[Delivery]:
        """Those of `deliveries` that are about these zones."""
        incidents = self.notifier.incidents.incidents
        return [
            each for each in deliveries if each.incident in incidents and self.has_incident(incidents[each.incident])
        ]

    def title(self, attempt: "Attempt") -> str:
        """The title of a message; of one that was about other zones, too, only the names of these; '': of others."""
        visible = [zone for zone in attempt.zones if self.scope.has_zone(*zone)]
        return attempt.title if len(visible) == len(attempt.zones) else ", ".join(map("/".join, visible))
