"""The metrics of profiles."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import ScrapedCollector, gauge

if TYPE_CHECKING:
    from embereye.addons.profiles.keeper import Profiles

PERMITS = gauge("embereye_hub_profile_permits", "Zones with a permit for the profile.", ["profile"])
UNCONFIRMED = gauge(
    "embereye_hub_profiles_unconfirmed", "Permits and schedules that ended because nobody confirmed them in time."
)


class ProfileMetrics(ScrapedCollector):
    """Collects the metrics of profiles; without samples if none are declared."""

    def __init__(self, profiles: "Profiles | None") -> None:
        self._profiles = profiles

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        profiles = self._profiles
        counts = Counter(permit.profile for permit in profiles.permits.values()) if profiles else {}
        yield PERMITS.counts({name: counts[name] for name in profiles.options.profiles} if profiles else {})
        yield UNCONFIRMED.rows([((), len(profiles.unconfirmed()))] if profiles else ())
