"""The hubs of an operator, and which of them a fleet reports to."""

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
    """A hub; the release's own has no name."""

    name: str  # that fleets choose it by
    address: str  # host:port of its control port, as shards reach it
    process: str = ""  # what it is called in its certificate, which is in the Secret of that name and "-identity"
    namespaces: tuple[str, ...] = ()  # whose fleets it is for, and theirs unless they choose another; empty: all may
    names: tuple[str, ...] = ()  # by which people dial it, for its certificate


class UnknownHubError(Exception):
    """A fleet's hub cannot be told; says why, and what there is."""


def choose_hub(fleet: Fleet, own: NamedHub, hubs: Sequence[NamedHub]) -> NamedHub:
    """The hub that `fleet` reports to; `own` is the release's.

    UnknownHubError where it names none of `hubs` that it may use, or names none and several are for its namespace.
    """
    wanted = fleet.spec.hub
    if not wanted:
        theirs = [hub for hub in hubs if fleet.namespace in hub.namespaces]
        if len(theirs) > 1:
            names = ", ".join(hub.name for hub in theirs)
            raise UnknownHubError(f"several hubs are for namespace {fleet.namespace}: say in spec.hub which, {names}")
        return theirs[0] if theirs else own
    allowed = {hub.name: hub for hub in hubs if not hub.namespaces or fleet.namespace in hub.namespaces}
    if wanted in allowed:
        return allowed[wanted]
    known = f"there are {', '.join(sorted(allowed))}" if allowed else "there is none but the release's own"
    raise UnknownHubError(
        f'spec.hub: no hub "{wanted}" is for namespace {fleet.namespace}; {known}: choose one, leave the field out, '
        "or declare it in the release's values under hubs"
    )


def parse_hubs(text: str) -> tuple[NamedHub, ...]:
    """The hubs that a JSON list declares, as the chart writes it; ValueError says what is wrong with it."""
    try:
        declared = json.loads(text or "[]")
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(declared, list) or not all(isinstance(entry, dict) for entry in declared):
        raise ValueError("is not a list of objects")
    hubs = tuple(_parse(entry, f"[{number}]") for number, entry in enumerate(declared))
    if twice := {hub.name for hub in hubs if sum(other.name == hub.name for other in hubs) > 1}:
        raise ValueError(f'declares "{min(twice)}" twice')
    return hubs


def _parse(entry: dict[str, Any], place: str) -> NamedHub:
    if unknown := sorted(entry.keys() - FIELDS):
        raise ValueError(f"{place}.{unknown[0]}: there is no such field; known here: {', '.join(sorted(FIELDS))}")
    texts = {field: entry.get(field) for field in ("name", "address", "process")}
    for field, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"{place}.{field}: {json.dumps(value)} is not a text")
    if not re.fullmatch(HUB_NAME, str(texts["name"])):
        raise ValueError(f'{place}.name: "{texts["name"]}" is not a name: lower-case letters, digits and "-"')
    split_address(str(texts["address"]))
    lists = {field: entry.get(field, []) for field in ("namespaces", "names")}
    for field, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise ValueError(f"{place}.{field}: {json.dumps(values)} is not a list of texts")
    return NamedHub(
        str(texts["name"]), str(texts["address"]), str(texts["process"]),
        tuple(lists["namespaces"]), tuple(lists["names"]),
    )  # fmt: skip
