"""How a watch that has died is told from one that is only slow, by the events that it leaves out; and a restore."""

from collections.abc import Collection
from dataclasses import dataclass, field

LIMIT = 60.0  # seconds that an event may be late: a burst over thousands of objects takes less


@dataclass
class WatchLag:
    """Objects that a list told and the watch of their kind has not told since, each with a time of its own.

    A deletion is no evidence: a watch that was renewed lists what there is, and what is gone it never tells.
    """

    _expected: dict[tuple[str, str, str], tuple[int, float]] = field(
        default_factory=dict
    )  # object → version, since when
    _versions: dict[str, int] = field(default_factory=dict)  # kind → as of which it was listed last
    _restored: str = ""  # why nothing that is known counts any more

    def expect(self, key: tuple[str, str, str], version: int, now: float) -> None:
        """Note that a list told `key` at a `version` that neither a watch nor our own writing had told.

        `now` is in monotonic seconds. One that is expected already keeps its time: it may change at every list.
        """
        self._expected.setdefault(key, (version, now))

    def listed(self, kind: str, version: int) -> None:
        """Note as of which version all objects of `kind` were listed: those of one server only grow."""
        if version < (before := self._versions.get(kind, 0)):
            self._restored = (
                f"{kind} was listed as of version {version} after {before}: the API server was restored from a backup, "
                "and what is known of it counts as newer than what it has"
            )
        self._versions[kind] = version

    def retain(self, kind: str, there: Collection[tuple[str, str, str]]) -> None:
        """Expect nothing of `kind` that is not `there` any more."""
        seen = frozenset(there)
        for key in [key for key in self._expected if key[0] == kind and key not in seen]:
            del self._expected[key]

    def told(self, key: tuple[str, str, str], version: int) -> None:
        """Note that the watch told `key` at `version`."""
        if (expected := self._expected.get(key)) is not None and version >= expected[0]:
            del self._expected[key]

    def dead(self, now: float) -> str:
        """Why a watch counts as dead at `now`, or all of them do; '' where none does."""
        if self._restored:
            return self._restored
        for (kind, namespace, name), (version, since) in self._expected.items():
            if now - since > LIMIT:
                what = f"{kind} {namespace}/{name}"
                return f"no watch has told {what} at version {version}, listed {now - since:.0f} s ago"
        return ""
