"""Profiles: the signs that work in a zone makes, such as welding. Pure.

A profile hides no sign. Signs of the expected kinds are a pre-alarm, alone or together; a sign of any other kind
confirms them. A critical sign is never expected.
"""

from dataclasses import dataclass

from embereye.levels import Kind, Level
from embereye.v1.evidence_pb2 import EvidenceItem


@dataclass(frozen=True)
class Profile:
    """The profile of a zone at some moment."""

    name: str
    expected: frozenset[Kind] = frozenset()  # kinds of sign

    def is_expected(self, item: EvidenceItem) -> bool:
        """True if the work in the zone may have made this sign."""
        return Kind(item.kind) in self.expected and item.level < Level.CRITICAL
