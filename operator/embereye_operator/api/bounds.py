"""The bounds within which a site survives harm: for the reliability tests, and for drills in a user's cluster.

A gap is the longest time for which a working sensor may go without acknowledgement, in seconds.
"""

from collections.abc import Mapping

GAPS: Mapping[str, float] = {
    "shard deleted": 10.0,
    "shard evicted": 1.5,
    "hub killed": 1.5,
    "node drained": 1.5,
    "ConfigMaps gone": 1.5,
}
COVERED_SECONDS = 120.0  # until a harmed fleet is covered, with all of its shards
