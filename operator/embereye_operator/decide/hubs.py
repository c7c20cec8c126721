"""The hubs of an operator, and the choice of a fleet's hub.

The chart writes additional hubs as JSON, which the operator parses at its start. In each pass, `choose_hub` selects by
the fleet's `spec.hub`, or else by its namespace, or else the release's default. If the choice is impossible or
ambiguous, the pass changes nothing, and the status names the possible hubs.
"""

import json
from collections.abc import Sequence

from embereye.units import split_address
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Resource, described, from_manifest, problems, schema_of, with_defaults
from embereye_operator.api.shared import HUB_NAME


class NamedHub(Resource):
    """A hub; the release's default hub has no name."""

    name: str = described("By which fleets choose it.", pattern=HUB_NAME, hint="is not a name: a-z, digits and '-'")
    address: str = described("host:port of its control port, as shards reach it.", min_length=1)
    process: str = described("Its name in its certificate, stored in the Secret NAME-identity.", default="")
    namespaces: tuple[str, ...] = described("Those for whose fleets it is the default; empty: any.", default=())
    names: tuple[str, ...] = described("Host names that people use, for its certificate.", default=())


class _Hubs(Resource):
    hubs: tuple[NamedHub, ...] = described("All of them.", default=(), list_key="name")


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
    value = with_defaults(schema_of(_Hubs), {"hubs": declared})
    if errors := problems(_Hubs, value, path=""):
        raise ValueError("; ".join(error.removeprefix(".hubs") for error in errors))
    parsed: _Hubs = from_manifest(_Hubs, value)
    for number, hub in enumerate(parsed.hubs):
        split_address(hub.address)
        if not hub.process:
            raise ValueError(f"[{number}].process: is required")
    return parsed.hubs
