"""How a watch that has died is told from one that is only slow: by the events that it leaves out."""

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

    def expect(self, key: tuple[str, str, str], version: int, now: float) -> None:
        """Note that a list told `key` at a `version` that neither a watch nor our own writing had told.

        `now` is in monotonic seconds. One that is expected already keeps its time: it may change at every list.
        """
        self._expected.setdefault(key, (version, now))

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
        """Why a watch counts as dead at `now`; '' where none does."""
        for (kind, namespace, name), (version, since) in self._expected.items():
            if now - since > LIMIT:
                what = f"{kind} {namespace}/{name}"
                return f"no watch has told {what} at version {version}, listed {now - since:.0f} s ago"
        return ""
