"""Show why a fleet has as many shards as it has: inputs, formula, result."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import NotFoundError, UserError
from embereye.process.telemetry.logs import visible
from embereye_cli.cluster.kubectl_options import add_target_arguments, target_of
from embereye_cli.parser import did_you_mean
from embereye_operator.api.fleets import FLEET_TYPES, Fleet, FleetError, parse_fleet
from embereye_operator.decide.scaling.explanation import explanation, sentences
from embereye_operator.runtime.kubernetes.client.client import NoClusterError, list_fleets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_fleet_arguments(parser)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="data folder of a running `embereye up`, instead of a cluster"
    )


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name a fleet, and the form of the output."""
    parser.add_argument("name", help="the fleet's name, or kind/name where both kinds have it")
    add_target_arguments(parser)
    add_output_arguments(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --output and --json."""
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="default: table")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as --output json")


def run(arguments: argparse.Namespace) -> int:
    """Explain; return the exit code."""
    target = target_of(arguments)
    try:
        fleets = local_fleets(arguments.data) if arguments.data else asyncio.run(list_fleets(target, print_problem))
    except NoClusterError as error:
        raise UserError(f"{error}, or the data folder of a running `embereye up` with --data") from error
    print_explanation(select(fleets, arguments.name, target.namespace), arguments.output)
    return 0


def print_explanation(fleet: Fleet, output: str) -> None:
    """Print why the fleet has as many shards as it has; `output` is "table" or "json"."""
    answer = explanation(fleet)
    print(json.dumps(answer, indent=2) if output == "json" else "\n".join(map(visible, sentences(answer))))


def print_problem(text: str) -> None:
    """Print a problem to standard error, next to the answer."""
    print(visible(text), file=sys.stderr)


def local_fleets(data: Path) -> list[Fleet]:
    """The fleets of the `embereye up` with the data folder `data`."""
    paths = sorted((data / "fleets").glob("*.json"))
    if not paths:
        raise NotFoundError(f"{data} has no fleets. Is it the data folder of a running `embereye up`?")
    return [_local_fleet(path) for path in paths]


def _local_fleet(path: Path) -> Fleet:
    try:
        return parse_fleet(json.loads(path.read_bytes()), strict=False)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, AttributeError, FleetError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def select(fleets: Sequence[Fleet], name: str, namespace: str = "") -> Fleet:
    """The fleet called `name`; NotFoundError if there is none, UserError if there are several."""
    kind, _, short = name.rpartition("/")
    aliases = {word: fleet for fleet in FLEET_TYPES.values() for word in _words(fleet)}
    if kind and kind.lower() not in aliases:
        raise UserError(f"{kind} is not a kind of fleet: use sf/{short} or cf/{short}")
    matches = [
        fleet
        for fleet in fleets
        if fleet.name == short
        and (not namespace or fleet.namespace == namespace)
        and (not kind or fleet.type is aliases[kind.lower()])
    ]
    if not matches:
        known = ", ".join(f"{fleet.type.short}/{fleet.name}" for fleet in fleets) or "none"
        hint = did_you_mean(name, [fleet.name for fleet in fleets])
        raise NotFoundError(f"there is no fleet {name}; there are: {known}.{hint}")
    if len(matches) > 1:
        titles = ", ".join(f"{fleet.type.short}/{fleet.name} in {fleet.namespace}" for fleet in matches)
        raise UserError(f"{name} can mean {titles}. Name one of them.")
    return matches[0]


def _words(fleet: Any) -> tuple[str, ...]:
    return fleet.short, fleet.plural, fleet.kind, fleet.resource.lower()
