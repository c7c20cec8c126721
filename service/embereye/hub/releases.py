"""The versions of the software that ran here, and since when: figures of two versions are never mixed."""

from embereye.hub.committer import Committer, Draft, Step
from embereye.hub.tables.releases import RELEASES
from embereye.hub.tables.transaction import Rows


class Releases(Rows[int, str]):
    """All versions that ran here."""

    def __init__(self, committer: Committer) -> None:
        super().__init__(RELEASES)
        self._committer = committer

    def all(self) -> list[tuple[int, str]]:
        """Each version with the time from which it ran, nanoseconds since the Unix epoch, ascending."""
        return sorted(self.items())

    def note_running(self, version: str) -> None:
        """Store that `version` runs from now on, unless it is the newest already."""
        if self.all()[-1:] and self.all()[-1][1] == version:
            return

        def step(draft: Draft) -> None:
            self.put(draft.transaction, draft.now_ns + draft.stepped_ns, version)

        self._committer.enqueue(Step(step))
