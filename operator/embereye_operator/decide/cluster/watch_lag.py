"""Distinguish dead watches from slow ones by the events that they omit; and detect a restored API server.

`KubernetesWorld` lists all objects periodically. It calls `expect` for each object that the list shows and no watch has
reported, and `note_event` when the watch does. An object that is expected for more than LIMIT proves a dead watch, and
`/healthz` asks for a restart. A list with an older version than an earlier list proves a restored server, whose objects
the cache would take for outdated.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

LIMIT = 60.0  # seconds an event may be late; a burst over thousands of objects takes less


@dataclass
class WatchLag:
    """Objects that a list returned and whose watch has not reported them since, each with its start time.

    Deletions are no evidence: a renewed watch lists existing objects, and never reports deleted ones.
    """

    _expected: dict[tuple[str, str, str], tuple[int, float]] = field(
        default_factory=dict
    )  # object → version, since when
    _versions: dict[str, int] = field(default_factory=dict)  # kind → resource version of its latest list
    _restored: str = ""  # why all known objects are invalid; "" if they are valid

    def expect(self, key: tuple[str, str, str], version: int, now: float) -> None:
        """Record that a list returned `key` at a `version` that neither a watch nor our own write has reported.

        `now` is in monotonic seconds. An expected object keeps its start time, because it may change at every list.
        """
        self._expected.setdefault(key, (version, now))

    def note_list(self, kind: str, version: int) -> None:
        """Record the resource version of a full list of `kind`: on one server it only grows."""
        if version < (before := self._versions.get(kind, 0)):
            self._restored = (
                f"{kind} was listed as of version {version} after {before}: the API server was restored from a backup, "
                "so cached objects look newer than its own"
            )
        self._versions[kind] = version

    def retain(self, kind: str, existing: Collection[tuple[str, str, str]]) -> None:
        """Stop expecting objects of `kind` that are not in `existing`."""
        remaining = frozenset(existing)
        for key in [key for key in self._expected if key[0] == kind and key not in remaining]:
            del self._expected[key]

    def note_event(self, key: tuple[str, str, str], version: int) -> None:
        """Record that the watch reported `key` at `version`."""
        if (expected := self._expected.get(key)) is not None and version >= expected[0]:
            del self._expected[key]

    def death_reason(self, now: float) -> str:
        """Return why a watch, or all of them, count as dead at `now`; '' if none does."""
        if self._restored:
            return self._restored
        for (kind, namespace, name), (version, since) in self._expected.items():
            if now - since > LIMIT:
                missing = f"{kind} {namespace}/{name} at version {version}"
                return f"no watch has reported {missing}, listed {now - since:.0f} s ago"
        return ""
