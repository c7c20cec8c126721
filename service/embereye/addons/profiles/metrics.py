"""The metrics of profiles."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import gauge

if TYPE_CHECKING:
    from embereye.addons.profiles.keeper import Profiles

PERMITS = gauge("embereye_hub_profile_permits", "Zones with a permit for the profile.", ["profile"])
UNCONFIRMED = gauge(
    "embereye_hub_profiles_unconfirmed", "Permits and schedules that ended because nobody confirmed them in time."
)


def profile_metrics(profiles: "Profiles") -> Iterator[Metric]:
    """Yield the metrics of profiles."""
    counts = Counter(permit.profile for permit in profiles.permits.values())
    yield PERMITS.counts({name: counts[name] for name in profiles.options.profiles})
    yield UNCONFIRMED.value(len(profiles.unconfirmed()))
