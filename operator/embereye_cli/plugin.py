"""`kubectl embereye`: show the state of fleets, devices and scaling; drain shards, pause fleets and roll-outs."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from lightkube import AsyncClient
from lightkube.types import PatchType

from embereye.process.lifecycle import NotFoundError, UserError, print_error
from embereye.process.telemetry.logs import visible
from embereye_cli.cluster import drill, report, storage
from embereye_cli.cluster.kubectl_options import add_target_arguments, target_of
from embereye_cli.explain.fleet import (
    add_fleet_arguments,
    add_output_arguments,
    print_explanation,
    print_problem,
    select,
)
from embereye_cli.main import run_process
from embereye_cli.parser import Parser
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, from_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.manifests.names import ANNOTATION_DRAIN, drained
from embereye_operator.decide.ownership.staleness import why_stale
from embereye_operator.decide.placement.record import PlacementRecord, read_record
from embereye_operator.decide.rollout.rollout import ANNOTATION_ROLLOUT
from embereye_operator.runtime.kubernetes.client.client import (
    connected,
    fleets_of,
    list_fleets,
)
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, FLEETS
from embereye_operator.runtime.kubernetes.hub_status import hub_troubles
from embereye_operator.runtime.kubernetes.observers import absent_operators, refused_statuses

Row = Sequence[object]
Command = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


class PluginParser(Parser):
    """A parser of `kubectl embereye`."""

    program = "kubectl embereye"


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands and their options."""
    parser = PluginParser(prog="kubectl embereye", description=__doc__)
    add_target_arguments(parser)  # kubectl accepts them before the command too
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, run: Command, text: str, add_arguments: Callable[[argparse.ArgumentParser], None]) -> Parser:
        command: Parser = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        add_arguments(command)
        return command

    status = add("status", _status, "list all fleets and their state", add_target_arguments)
    status.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")
    add_output_arguments(status)
    add("devices", _devices, "list a fleet's devices: their shard, and why one is dark", add_fleet_arguments)
    addresses = "list the addresses where devices outside the cluster reach a fleet"
    add("addresses", _addresses, addresses, add_fleet_arguments)
    add("explain", _explain, "explain a fleet's scaling: inputs, formula, result", add_fleet_arguments)
    replacing = add("drain", _drain, "replace a shard by others", add_fleet_arguments)
    shard = "name or number of the shard; without it, list the drained ones"
    replacing.add_argument("shard", nargs="?", default="", help=shard)
    replacing.add_argument("--undo", action="store_true", help="use the shard again")
    add("pause", _pause, "stop the operator from changing a fleet", add_fleet_arguments)
    add("resume", _pause, "let the operator change a paused fleet again", add_fleet_arguments)
    add("rollout", _rollout, "show, pause, resume or undo a roll-out", _add_rollout_arguments)
    harm = "do harm to a fleet, one fault after the other, and measure the recovery"
    add("drill", drill.run, harm, drill.add_arguments)
    archive = "write everything that the cluster knows about EmberEye to an archive, without secrets"
    report.add_arguments(add("report", report.run, archive, add_target_arguments))
    migrate = "store every fleet in the current version of its CRD"
    add("migrate-storage", storage.run, migrate, add_target_arguments)
    return parser


def _add_rollout_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ["status", "pause", "resume", "undo"]
    parser.add_argument("action", choices=actions, help="undo: return to the previous image")
    add_fleet_arguments(parser)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the plugin; return the exit code."""
    return run_process(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    parsed = build_parser().parse_args(arguments)
    try:
        return int(asyncio.run(parsed.run(parsed)))
    except UserError as error:
        return print_error(error, "kubectl embereye")


# --- pure: output ---------------------------------------------------------------------------------------------------


def table(header: Row, rows: Sequence[Row]) -> str:
    """A table with kubectl's column alignment."""
    cells = [[visible(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def status_of(fleet: Fleet, stale: str = "") -> Manifest:
    """The state of a fleet, as one object. `stale` is why the status may be outdated."""
    status: FleetStatus = from_manifest(FleetStatus, fleet.status)

    def condition(type_: str) -> tuple[str, str]:
        match = status.condition(type_)
        unknown = ("Unknown", "no operator has reported yet: does one watch this namespace?")
        return (match.status, match.message) if match else unknown

    questions = [("Covered", "True"), ("Ready", "True"), ("Degraded", "False")]
    questions += [("Exposed", "True")] if status.condition("Exposed") else []
    wrong = [
        message for type_, good in questions for answer, message in [condition(type_)] if answer != good and message
    ]
    wrong = [stale, *wrong] if stale else wrong
    return {
        "namespace": fleet.namespace,
        "fleet": f"{fleet.type.short}/{fleet.name}",
        "well": not wrong,
        "stale": stale,
        "lastObserved": status.last_observed or "",
        "shards": fleet.spec.shards,
        "ready": status.ready_shards,
        "required": status.required_shards,
        "declared": status.devices.declared,
        "covered": status.devices.covered,
        "epoch": status.placement_epoch,
        "paused": fleet.spec.paused,
        "scaling": fleet.spec.autoscaling.mode,
        "why": wrong,
    }


def status_table(lines: Sequence[Manifest]) -> str:
    """A table of all fleets, from `status_of`."""
    rows: list[Row] = []
    for line in lines:
        well = "UNKNOWN" if line["stale"] else "yes" if line["well"] else "NO"
        paused = line["paused"] and not line["stale"]
        rows.append(
            (
                line["namespace"], line["fleet"], well, f"{line['ready']}/{line['shards']}",
                line["required"], f"{line['covered']}/{line['declared']}", line["scaling"], line["epoch"],
                "paused" if paused else (line["why"] or [""])[0][:200],
            )
        )  # fmt: skip
    return table(("NAMESPACE", "FLEET", "WELL", "READY", "REQUIRED", "COVERED", "SCALING", "EPOCH", "WHY NOT"), rows)


def devices_of(fleet: Fleet, record: PlacementRecord) -> list[Manifest]:
    """Every device with its owner, and the reason if it is dark."""
    status: FleetStatus = from_manifest(FleetStatus, fleet.status)
    dark = {entry.id: entry.reason for entry in status.devices.dark}
    zones = {
        device.id: device.zone
        for assignment in record.assignments.values()
        for device in (assignment.devices if assignment else ())
    }
    names = sorted({*record.devices, *dark, *(device.id for device in fleet.devices)})
    return [
        {
            "device": name,
            "zone": zones.get(name, ""),
            "shard": record.devices.get(name, ""),
            "leaving": record.moving[name].holder if name in record.moving else "",
            "dark": dark.get(name, ""),
        }
        for name in names
    ]


def devices_table(devices: Sequence[Manifest]) -> str:
    """A table of devices, the dark ones first."""
    rows = [
        (
            entry["device"],
            entry["zone"],
            f"{entry['leaving']} → {entry['shard']}" if entry["leaving"] else entry["shard"] or "<none>",
            f"DARK: {entry['dark']}" if entry["dark"] else "",
        )
        for entry in sorted(devices, key=lambda entry: (not entry["dark"], entry["device"]))
    ]
    return table(("DEVICE", "ZONE", "SHARD", "STATE"), rows)


def addresses_table(fleet: Fleet) -> str:
    """The addresses where devices outside the cluster reach a fleet, and the reason if they cannot."""
    status: FleetStatus = from_manifest(FleetStatus, fleet.status)
    exposed = status.condition("Exposed")
    if exposed is None:
        return f"{fleet.key} is reachable by pods only. Set spec.expose to open it to devices outside the cluster."
    rows = [(entry.protocol, entry.address, entry.device or entry.shard or "any shard") for entry in status.addresses]
    shown = table(("PROTOCOL", "ADDRESS", "FOR"), rows)
    return shown if exposed.status == "True" else f"{shown}\n{visible(f'{exposed.reason}: {exposed.message}')}"


def shard_of(fleet: Fleet, text: str) -> str:
    """The full name of the shard with the name or number `text`; NotFoundError."""
    prefix, _, number = text.rpartition("-")
    name = fleet.names.shard(int(number)) if number.isdecimal() and len(number) < 10 else text
    if fleet.names.index(name) is None or prefix not in {"", name.rpartition("-")[0]}:
        raise NotFoundError(f"{text} is not a shard of {fleet.name}. Its shards are {fleet.names.shard(0)} and so on.")
    return name


# --- commands -------------------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace, document: Any, text: Callable[[], str]) -> int:
    print(json.dumps(document, indent=2) if arguments.output == "json" else text())
    return 0


async def _status(arguments: argparse.Namespace) -> int:
    fleets = await list_fleets(target_of(arguments), print_problem)
    async with connected(target_of(arguments)) as client:
        for problem in await hub_troubles(client):
            print_problem(problem)
        stale = await _stale(client, fleets)
    if not fleets and arguments.output == "table":
        print("no fleets. Apply a SensorFleet or a CameraFleet.", file=sys.stderr)
        return 0
    lines = [status_of(fleet, stale.get(fleet.key, "")) for fleet in fleets]
    return _show(arguments, lines, lambda: status_table(lines))


async def _stale(client: AsyncClient, fleets: Sequence[Fleet]) -> dict[str, str]:
    """Return why the status of each fleet may be outdated, by the fleet's key; without those that are current."""
    statuses = [from_manifest(FleetStatus, fleet.status) for fleet in fleets]
    names = [status.operator.name for status in statuses if status.operator]
    absent, problems = await absent_operators(client, names)
    refused, unread = await refused_statuses(client, [fleet.namespace for fleet in fleets])
    for problem in (*problems, *unread):
        print_problem(problem)
    reasons = {fleet.key: why_stale(fleet, absent, time.time_ns(), refused) for fleet in fleets}
    return {key: why for key, why in reasons.items() if why}


async def _named_fleet(client: AsyncClient, arguments: argparse.Namespace) -> Fleet:
    """The fleet with the given name; prints why its status may be outdated."""
    fleet = select(await fleets_of(client, client.namespace, print_problem), arguments.name)
    for why in (await _stale(client, [fleet])).values():
        print_problem(f"{fleet.key}: {why}")
    return fleet


async def _devices(arguments: argparse.Namespace) -> int:
    async with connected(target_of(arguments)) as client:
        fleet = await _named_fleet(client, arguments)
        maps: Any = client.list(
            CHILDREN["ConfigMap"], namespace=fleet.namespace, fields={"metadata.name": fleet.names.placement}
        )
        placements = [manifest async for manifest in maps]
    devices = devices_of(fleet, read_record(fleet, placements[0] if placements else None))
    return _show(arguments, devices, lambda: devices_table(devices))


async def _addresses(arguments: argparse.Namespace) -> int:
    async with connected(target_of(arguments)) as client:
        fleet = await _named_fleet(client, arguments)
    return _show(arguments, fleet.status.get("addresses", []), lambda: addresses_table(fleet))


async def _explain(arguments: argparse.Namespace) -> int:
    async with connected(target_of(arguments)) as client:
        print_explanation(await _named_fleet(client, arguments), arguments.output)
    return 0


async def _patch(client: AsyncClient, fleet: Fleet, patch: Manifest) -> None:
    await client.patch(
        FLEETS[fleet.type.resource], fleet.name, patch, namespace=fleet.namespace, patch_type=PatchType.MERGE,
        field_manager="kubectl-embereye",
    )  # fmt: skip


async def _drain(arguments: argparse.Namespace) -> int:
    async with connected(target_of(arguments)) as client:
        fleet = await _named_fleet(client, arguments)
        names = drained(fleet)
        if arguments.shard:
            shard = shard_of(fleet, arguments.shard)
            names = [name for name in names if name != shard] + ([] if arguments.undo else [shard])
            value = ",".join(names) or None
            await _patch(client, fleet, {"metadata": {"annotations": {ANNOTATION_DRAIN: value}}})
    text = f"{fleet.key}: drained shards: {', '.join(names) or 'none'}"
    return _show(arguments, {"fleet": fleet.key, "drained": names}, lambda: text)


async def _pause(arguments: argparse.Namespace) -> int:
    async with connected(target_of(arguments)) as client:
        fleet = await _named_fleet(client, arguments)
        paused = arguments.command == "pause"
        await _patch(client, fleet, {"spec": {"paused": paused}})
    text = f"{fleet.key} {'is paused' if paused else 'is active again'}"
    return _show(arguments, {"fleet": fleet.key, "paused": paused}, lambda: text)


def rollout_text(fleet: Fleet) -> str:
    """The progress of a fleet's roll-out."""
    rollout = from_manifest(FleetStatus, fleet.status).rollout
    if rollout is None:
        return f"{fleet.key}: the operator has not reported yet"
    paused = " (paused)" if fleet.annotations.get(ANNOTATION_ROLLOUT) == "paused" else ""
    progress = f"{rollout.updated} of {rollout.updated + rollout.pending} shards are up to date{paused}"
    lines = [f"{fleet.key}: {rollout.image}: {progress}"]
    lines += [f"previous image: {rollout.from_}"] if rollout.from_ else []
    return "\n".join(map(visible, [*lines, *([rollout.why] if rollout.why else [])]))


def undone(fleet: Fleet) -> Manifest:
    """The change of the spec that undoes the latest change of the image; NotFoundError if there is no previous one."""
    rollout = from_manifest(FleetStatus, fleet.status).rollout
    if rollout is None or not rollout.from_:
        raise NotFoundError(f"{fleet.key}: no previous image is known. Set spec.image.")
    return {"image": rollout.from_}


async def _rollout(arguments: argparse.Namespace) -> int:
    async with connected(target_of(arguments)) as client:
        fleet = await _named_fleet(client, arguments)
        if arguments.action == "undo":
            spec = undone(fleet)
            await _patch(client, fleet, {"spec": spec})
            text = f"returns to {spec['image']}, now set in spec.image. Remove that to follow the operator again."
            return _show(arguments, {"fleet": fleet.key, **spec}, lambda: f"{fleet.key} {text}")
        if arguments.action != "status":
            paused = arguments.action == "pause"
            value = "paused" if paused else None
            await _patch(client, fleet, {"metadata": {"annotations": {ANNOTATION_ROLLOUT: value}}})
            text = "the roll-out is paused" if paused else "the roll-out continues"
            return _show(arguments, {"fleet": fleet.key, "paused": paused}, lambda: f"{fleet.key}: {text}")
    return _show(arguments, fleet.status.get("rollout", {}), lambda: rollout_text(fleet))


if __name__ == "__main__":
    sys.exit(main())
