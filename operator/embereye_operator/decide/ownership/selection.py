"""The fleets of an operator: those in its namespaces that match its label selector."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from embereye_operator.api.schema import Manifest

_KEY = r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_KEY})\s*"
    rf"(?:(?P<operator>==|=|!=)\s*(?P<value>(?:{_VALUE})?)|\s(?P<set>in|notin)\s*"
    rf"\((?P<values>\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*)\))?\s*(?P<more>,|$)"
)


@dataclass(frozen=True)
class Requirement:
    """One term of a label selector: the label's value is among `values`, or is not."""

    key: str
    values: frozenset[str] | None  # None: any
    negated: bool = False

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """True if an object with `labels` meets the term; an absent label is not among any values."""
        matches = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return matches != self.negated


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Parse `a=b,c!=d,e in (f, g),h notin (i),j,!k` as kubectl does; ValueError if it is no selector."""
    requirements, position, more = [], 0, bool(text.strip())
    while more:
        match = _TERM.match(text, position)
        if match is None or (match["absent"] and (match["operator"] or match["set"])):
            raise ValueError(f'"{text}" is not a label selector such as site=north,stage notin (test)')
        values = [match["value"]] if match["operator"] else (match["values"] or "").split(",")
        among = frozenset(value.strip() for value in values) if match["operator"] or match["set"] else None
        negated = bool(match["absent"]) or match["operator"] == "!=" or match["set"] == "notin"
        requirements.append(Requirement(match["key"], among, negated))
        position, more = match.end(), bool(match["more"])
    return tuple(requirements)


@dataclass(frozen=True)
class Scope:
    """The namespaces and labels of an operator's fleets."""

    namespaces: tuple[str, ...] = ()  # none: all
    selector: str = ""
    _requirements: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_requirements", parse_selector(self.selector))

    def is_selected(self, labels: Mapping[str, str]) -> bool:
        """True if the selector matches a fleet with `labels`; its namespace is not considered."""
        return all(requirement.is_met(labels) for requirement in self._requirements)

    def is_responsible_for(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if the operator reconciles a fleet in `namespace` with `labels`."""
        return (not self.namespaces or namespace in self.namespaces) and self.is_selected(labels)

    def to_text(self) -> str:
        """Return the JSON text that other operators read."""
        return json.dumps({"namespaces": list(self.namespaces), "selector": self.selector})

    @classmethod
    def from_text(cls, text: str) -> "Scope":
        """Parse the result of `to_text`; a scope of everything if it is malformed."""
        try:
            document: Manifest = json.loads(text)
            return cls(tuple(map(str, document["namespaces"])), str(document["selector"]))
        except (ValueError, KeyError, TypeError):
            return cls()
