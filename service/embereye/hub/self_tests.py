"""Optical self-tests as the shards get them: the running ones of each fleet, and the devices whose latest one failed.

An add-on decides and sets them; the Evidence service sends them to the fleet's shards. Nothing is stored here.
"""

from collections.abc import Callable

from embereye.v1.evidence_pb2 import SelfTests


class SelfTestBoard:
    """The self-tests of all fleets. Listeners are called after each change."""

    def __init__(self) -> None:
        self._tests: dict[str, SelfTests] = {}  # by fleet
        self._listeners: list[Callable[[], None]] = []

    def of(self, fleet: str) -> SelfTests:
        """The tests of `fleet` ("namespace/kind/name")."""
        return self._tests.get(fleet) or SelfTests()

    def set(self, fleet: str, tests: SelfTests) -> None:
        """Replace the tests of `fleet`."""
        self._tests[fleet] = tests
        for changed in self._listeners:
            changed()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change."""
        self._listeners.append(changed)
