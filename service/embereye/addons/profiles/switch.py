"""The switch of a zone's profile at the MQTT broker, for profiles that allow it.

A message may begin such a profile only while a person's confirmation of it is valid, and only in a zone without
a permit. So no program extends a profile that nobody confirms.
"""

import json
from collections.abc import Sequence
from typing import Any

from embereye.addons.profiles.keeper import Profiles
from embereye.addons.profiles.options import NORMAL
from embereye.hub.actions import check_action
from embereye.hub.committer import StoreFailingError
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.zones import ZoneKey

BROKER = Principal("MQTT", Role.OPERATOR, "")  # the broker limits who writes
REASON = "by the switch"  # of a message without a reason


class ProfileSwitch:
    """Begins and ends profiles by messages: a profile's name, or an object that also has a reason and minutes."""

    name, title = "profile", "Profile"

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    def choices(self, key: ZoneKey) -> Sequence[str]:
        """The profiles of the zone that messages may begin, after normal; none: there is no such profile."""
        names = [each.name for each in self._profiles.options.profiles.values() if each.mqtt and each.has_zone(*key)]
        return [NORMAL, *names] if names else []

    def state(self, key: ZoneKey) -> str:
        """The name of the zone's present profile."""
        profile = self._profiles.profile_of(key)
        return profile.name if profile else NORMAL

    async def switch(self, key: ZoneKey, payload: str) -> str:
        """Begin a profile, or end the present permit; return why that is refused, '' if it is not."""
        try:
            wanted = _read(payload)
            profile = str(wanted.get("profile", ""))
            if profile not in self.choices(key):
                return f'"{profile[:80]}" is not one of {", ".join(self.choices(key)) or "its profiles: it has none"}'
            if profile == NORMAL:
                return await self._end(key)
            return await self._begin(key, profile, wanted)
        except (ValueError, UnknownNameError, StoreFailingError) as error:
            return str(error)

    async def _begin(self, key: ZoneKey, profile: str, wanted: dict[str, Any]) -> str:
        options, permit = self._profiles.options.profiles[profile], self._profiles.permits.get(key)
        if permit:
            return f"the zone has the profile {permit.profile}, which a person can confirm, or anybody end"
        if not self._profiles.is_confirmed(options):
            return f"nobody has confirmed the switch: embereye profile confirm --hours {profile}"
        minutes = wanted.get("minutes", options.longest)
        if isinstance(minutes, bool) or not isinstance(minutes, int):
            return "minutes: it is not a whole number"
        reason, who = str(wanted.get("reason") or REASON), str(wanted.get("who", ""))
        check_action(who, reason, "reason")
        confirmed_ns = self._profiles.schedules[profile].time_ns
        await self._profiles.begin(
            BROKER, key, profile, reason=reason, minutes=minutes, who=who, confirmed_ns=confirmed_ns
        )
        return ""

    async def _end(self, key: ZoneKey) -> str:
        permit = self._profiles.permits.get(key)
        if permit and permit.profile not in self.choices(key):
            return f"a person began the profile {permit.profile}, which messages may not end"
        if permit:
            await self._profiles.end(BROKER, key)
        return ""


def _read(payload: str) -> dict[str, Any]:
    text = payload.strip()
    if not text.startswith("{"):
        return {"profile": text}
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the message is not JSON: {error}") from error
    return document
