"""Since when a process has been running: before that it could hear nobody, and serve nobody."""

from embereye.units import SECOND


class Running:
    """Finds out that the process stood still, or its machine, by looks that are to be taken at least every second."""

    LONGEST_NS = 3 * SECOND // 2  # between two looks of a process that runs

    def __init__(self) -> None:
        self.stood_ns = 0  # for how long it has stood still in all, as far as it was looked
        self._looked_ns = 0
        self._since_ns = 0

    def since(self, now_ns: int) -> int:
        """Look, at `now_ns` on a clock that nobody sets; since when the process has run without standing still."""
        if now_ns - self._looked_ns > self.LONGEST_NS:
            self.stood_ns += now_ns - self._looked_ns if self._looked_ns else 0
            self._since_ns = now_ns
        self._looked_ns = now_ns
        return self._since_ns
