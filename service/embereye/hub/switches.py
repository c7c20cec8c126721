"""Switches of zones: what a broker's users may change, as add-ons offer it.

The broker limits who writes to a switch's topics. A switch receives a message only once, and none that the broker
had retained: nobody would know its age.
"""

from collections.abc import Sequence
from typing import Protocol

from embereye.hub.tables.zones import ZoneKey

MAX_MESSAGE = 4_000  # bytes


class ZoneSwitch(Protocol):
    """A choice that a message can make for a zone."""

    name: str  # in topics, in a zone's payload, and of Home Assistant's entity
    title: str  # for people

    def choices(self, key: ZoneKey) -> Sequence[str]:
        """The choices of the zone `key`; none: it has no such switch."""

    def state(self, key: ZoneKey) -> str:
        """The present choice."""

    async def switch(self, key: ZoneKey, payload: str) -> str:
        """Make the choice that `payload` names; return why it is refused, '' if it is not."""
