"""The hubs of an operator, and the choice of a fleet's hub.

The chart writes additional hubs as JSON, which the operator parses at its start. In each pass, `choose_hub` selects by
the fleet's `spec.hub`, or else by its namespace, or else the release's default. If the choice is impossible or
ambiguous, the pass changes nothing, and the status names the possible hubs.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from embereye.units import split_address
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.shared import HUB_NAME

FIELDS = {"name", "address", "process", "namespaces", "names"}


@dataclass(frozen=True)
class NamedHub:
    """A hub; the release's default hub has no name."""

    name: str  # by which fleets choose it
    address: str  # host:port of its control port, as shards reach it
    process: str = ""  # its name in its certificate, stored in the Secret NAME-identity
    namespaces: tuple[str, ...] = ()  # its namespaces, for whose fleets it is the default; empty: any
    names: tuple[str, ...] = ()  # host names that people use, for its certificate


class UnknownHubError(Exception):
    """A fleet's hub is unknown; the message has the reason and the possible names."""


def choose_hub(fleet: Fleet, default: NamedHub, hubs: Sequence[NamedHub]) -> NamedHub:
    """Choose the hub that `fleet` reports to; `default` is the release's.

    UnknownHubError if it names none of the `hubs` for its namespace, or names none and several are for its namespace.
    """
    wanted = fleet.spec.hub
    if not wanted:
        theirs = [hub for hub in hubs if fleet.namespace in hub.namespaces]
        if len(theirs) > 1:
            names = ", ".join(hub.name for hub in theirs)
            raise UnknownHubError(f"several hubs are for namespace {fleet.namespace}: set spec.hub to one of {names}")
        return theirs[0] if theirs else default
    allowed = {hub.name: hub for hub in hubs if not hub.namespaces or fleet.namespace in hub.namespaces}
    if wanted in allowed:
        return allowed[wanted]
    known = f"there are {', '.join(sorted(allowed))}" if allowed else "only the release's default hub exists"
    raise UnknownHubError(
        f'spec.hub: no hub "{wanted}" is for namespace {fleet.namespace}; {known}: use one of them, omit the field, '
        "or declare it in the release's values under hubs"
    )


def parse_hubs(text: str) -> tuple[NamedHub, ...]:
    """Parse the JSON list of hubs that the chart writes; ValueError with the reason if it is invalid."""
    try:
        declared = json.loads(text or "[]")
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(declared, list) or not all(isinstance(entry, dict) for entry in declared):
        raise ValueError("is not a list of objects")
    hubs = tuple(_parse(entry, f"[{number}]") for number, entry in enumerate(declared))
    if repeated := {hub.name for hub in hubs if [entry.name for entry in hubs].count(hub.name) > 1}:
        raise ValueError(f'declares "{min(repeated)}" twice')
    return hubs


def _parse(entry: dict[str, Any], place: str) -> NamedHub:
    if unknown := sorted(entry.keys() - FIELDS):
        raise ValueError(f"{place}.{unknown[0]}: unknown field. Use one of {', '.join(sorted(FIELDS))}")
    texts = {field: entry.get(field) for field in ("name", "address", "process")}
    for field, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"{place}.{field}: {json.dumps(value)} is not a non-empty string")
    if not re.fullmatch(HUB_NAME, str(texts["name"])):
        raise ValueError(f'{place}.name: "{texts["name"]}" is not a name: lower-case letters, digits and "-"')
    split_address(str(texts["address"]))
    lists = {field: entry.get(field, []) for field in ("namespaces", "names")}
    for field, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise ValueError(f"{place}.{field}: {json.dumps(values)} is not a list of strings")
    return NamedHub(
        str(texts["name"]), str(texts["address"]), str(texts["process"]),
        tuple(lists["namespaces"]), tuple(lists["names"]),
    )  # fmt: skip
