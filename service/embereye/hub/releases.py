"""The versions of the software that ran here, and since when: figures of two versions are never mixed."""

from embereye.hub.committer import Committer, Draft, Step
from embereye.hub.tables.releases import RELEASES
from embereye.hub.tables.transaction import StoredState, Transaction


class Releases:
    """All versions that ran here."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._releases: dict[int, str] = {}

    def restore(self, stored: StoredState) -> None:
        """Restore the stored versions."""
        self._releases = dict(stored[RELEASES])

    def add_state(self, state: Transaction) -> None:
        """Add all versions to `state`."""
        state[RELEASES].update(self._releases)

    def all(self) -> list[tuple[int, str]]:
        """Each version with the time from which it ran, nanoseconds since the Unix epoch, ascending."""
        return sorted(self._releases.items())

    def note_running(self, version: str) -> None:
        """Store that `version` runs from now on, unless it is the newest already."""
        if self.all()[-1:] and self.all()[-1][1] == version:
            return

        def step(draft: Draft) -> None:
            since_ns = draft.now_ns + draft.stepped_ns
            self._releases[since_ns] = draft.transaction[RELEASES][since_ns] = version

        self._committer.enqueue(Step(step))
