"""Limits what is logged about each peer, so that a stranger cannot fill the log."""

import time

LOG_SECONDS = 60.0  # between two lines about one peer
PEERS = 1_000  # most peers that are remembered


class PerPeer:
    """Allows one log line per peer and minute."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}  # peer → when it may be logged again, monotonic seconds; oldest first

    def is_due(self, peer: str) -> bool:
        """True if `peer` may be logged now, which counts as logged."""
        now = time.monotonic()
        if now < self._due.get(peer, now):
            return False
        self._due.pop(peer, None)
        self._due[peer] = now + LOG_SECONDS
        if len(self._due) > PEERS:
            del self._due[next(iter(self._due))]
        return True
