"""Which fleets an operator looks after: those of its namespaces that its label selector selects."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from embereye_operator.api.schema import Manifest

_KEY = r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9._-]{0,63}"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_KEY})\s*"
    rf"(?:(?P<operator>==|=|!=)\s*(?P<value>{_VALUE})|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,|$)"
)


@dataclass(frozen=True)
class Requirement:
    """One term of a label selector: the label's value is among `values`, or it is not."""

    key: str
    values: frozenset[str] | None  # None: any
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether it holds for an object with `labels`; an absent label is not among any values."""
        found = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return found != self.negated


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """The terms of `a=b,c!=d,e in (f, g),h notin (i),j,!k`, as kubectl has them; ValueError where it is none."""
    requirements, position = [], 0
    while position < len(text.rstrip(", ")):
        match = _TERM.match(text, position)
        if match is None or (match["absent"] and (match["operator"] or match["set"])):
            raise ValueError(f'"{text}" is not a label selector such as site=north,stage notin (test)')
        values = [match["value"]] if match["operator"] else (match["values"] or "").split(",")
        among = frozenset(value.strip() for value in values) if match["operator"] or match["set"] else None
        negated = bool(match["absent"]) or match["operator"] == "!=" or match["set"] == "notin"
        requirements.append(Requirement(match["key"], among, negated))
        position = match.end()
    return tuple(requirements)


@dataclass(frozen=True)
class Scope:
    """What an operator looks after."""

    namespaces: tuple[str, ...] = ()  # none: all
    selector: str = ""
    _requirements: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_requirements", parse_selector(self.selector))

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether it looks after a fleet with `labels`, if it does after the fleet's namespace."""
        return all(requirement.holds(labels) for requirement in self._requirements)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it looks after a fleet of `namespace` with `labels`."""
        return (not self.namespaces or namespace in self.namespaces) and self.selects(labels)

    def to_text(self) -> str:
        """As other operators read it."""
        return json.dumps({"namespaces": list(self.namespaces), "selector": self.selector})

    @classmethod
    def from_text(cls, text: str) -> "Scope":
        """What `to_text` said; everything, where it is not understood."""
        try:
            told: Manifest = json.loads(text)
            return cls(tuple(map(str, told["namespaces"])), str(told["selector"]))
        except (ValueError, KeyError, TypeError):
            return cls()
