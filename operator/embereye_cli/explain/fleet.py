"""Say why a fleet has as many shards as it has: inputs, formula, outcome."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye_cli.cluster.kubectl_options import add_target_arguments, target_of
from embereye_operator.api.fleets import FLEET_TYPES, Fleet, FleetError, parse_fleet
from embereye_operator.decide.scaling.explanation import explanation, sentences
from embereye_operator.runtime.kubernetes.client.client import NoClusterError, list_fleets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_fleet_arguments(parser)
    parser.add_argument("--data", type=Path, metavar="DIR", help="of a running `embereye up`, instead of a cluster")


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Which fleet is meant."""
    parser.add_argument("name", help="the fleet's name, or kind/name where both kinds have it")
    add_target_arguments(parser)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="default: table")


def run(arguments: argparse.Namespace) -> int:
    """Explain; returns the exit code."""
    target = target_of(arguments)
    try:
        found = local_fleets(arguments.data) if arguments.data else asyncio.run(list_fleets(target, tell_trouble))
    except NoClusterError as error:
        raise UserError(f"{error}, or the folder of a running `embereye up` by --data") from error
    tell(select(found, arguments.name, target.namespace), arguments.output)
    return 0


def tell(fleet: Fleet, output: str) -> None:
    """Print why it has as many shards as it has, as `output` ("table" or "json") asks."""
    answer = explanation(fleet)
    print(json.dumps(answer, indent=2) if output == "json" else "\n".join(map(visible, sentences(answer))))


def tell_trouble(text: str) -> None:
    """Say beside what was asked for what else is not well."""
    print(visible(text), file=sys.stderr)


def local_fleets(data: Path) -> list[Fleet]:
    """The fleets of the `embereye up` that keeps its data in `data`."""
    paths = sorted((data / "fleets").glob("*.json"))
    if not paths:
        raise UserError(f"{data} has no fleets: is it the --data of a running `embereye up`?")
    return [_local_fleet(path) for path in paths]


def _local_fleet(path: Path) -> Fleet:
    try:
        return parse_fleet(json.loads(path.read_bytes()), strict=False)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, AttributeError, FleetError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def select(fleets: Sequence[Fleet], name: str, namespace: str = "") -> Fleet:
    """The one fleet that is meant; UserError where there is none or more than one."""
    kind, _, short = name.rpartition("/")
    aliases = {word: fleet for fleet in FLEET_TYPES.values() for word in _words(fleet)}
    if kind and kind.lower() not in aliases:
        raise UserError(f"{kind} is not a kind of fleet: use sf/{short} or cf/{short}")
    found = [
        fleet
        for fleet in fleets
        if fleet.name == short
        and (not namespace or fleet.namespace == namespace)
        and (not kind or fleet.type is aliases[kind.lower()])
    ]
    if not found:
        there = ", ".join(f"{fleet.type.short}/{fleet.name}" for fleet in fleets) or "none"
        raise UserError(f"there is no fleet {name}; there are: {there}")
    if len(found) > 1:
        which = ", ".join(f"{fleet.type.short}/{fleet.name} in {fleet.namespace}" for fleet in found)
        raise UserError(f"{name} may be any of {which}: say which")
    return found[0]


def _words(fleet: Any) -> tuple[str, ...]:
    return fleet.short, fleet.plural, fleet.kind, fleet.resource.lower()
