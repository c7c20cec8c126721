"""Say how many shards, cores and megabytes fleets take before they are there, with the arithmetic."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import UserError
from embereye.units import counted
from embereye_cli.values import amount
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.capacity.costs import Costs, parse_costs
from embereye_operator.decide.capacity.plan import CameraDemand, Plan, SensorDemand, max_devices, plan
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.up.folder import load_fleets

CODECS = ("jpeg", "h264", "h265")
MB = 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("manifests", nargs="*", type=Path, metavar="FLEET.yaml", help="fleets as they are declared")
    parser.add_argument("--sensors", type=amount, default=0, metavar="N", help="or without a manifest: so many sensors")
    parser.add_argument("--hz", type=float, default=10.0, help="readings a second of each sensor (%(default)s)")
    parser.add_argument("--frame-hz", type=float, default=0.0, help="thermal frames likewise (%(default)s)")
    parser.add_argument("--cameras", type=amount, default=0, metavar="N", help="so many cameras")
    parser.add_argument("--fps", type=float, default=None, help="pictures a second of each (15, or the manifest's)")
    parser.add_argument("--codec", choices=CODECS, default="jpeg", help="what cameras send (%(default)s)")
    parser.add_argument("--size", default="640x480", metavar="WIDTHxHEIGHT", help="of their pictures (%(default)s)")
    parser.add_argument("--cores", type=float, default=None, help="of the machine that is asked about (this one's)")
    parser.add_argument("--costs", type=Path, metavar="FILE",
                        help="written by `embereye bench --calibrate` (default: those of this version)")  # fmt: skip
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Calculate and print; returns the exit code, 1 where fleets or the hub cannot do what is declared."""
    costs = load_costs(arguments.costs)
    demands = demands_of(arguments)
    if not demands:
        raise UserError("name fleets, or say --sensors N or --cameras N")
    cores = arguments.cores if arguments.cores is not None else float(os.cpu_count() or 1)
    if not 0 < cores <= 1e6:
        raise UserError(f"--cores {cores:g} is not more than 0")
    whole = plan(demands, costs)
    if arguments.output == "json":
        print(json.dumps(to_json(whole, demands, costs, cores), indent=1, ensure_ascii=False))
    else:
        print("\n".join(sentences(whole, demands, costs, cores)))
    return 1 if any(need.warning for need in (*whole.needs, whole.hub)) else 0


def load_costs(path: Path | None) -> Costs:
    """The costs in `path`, or those recorded with this version."""
    try:
        if path is None:
            package = resources.files("embereye_operator.decide.capacity")
            return parse_costs((package / "recorded.json").read_text(encoding="utf-8"))
        return parse_costs(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--costs {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"--costs {path} is not what `embereye bench --calibrate` writes: {error}") from error


def demands_of(arguments: argparse.Namespace) -> list[SensorDemand | CameraDemand]:
    """What the arguments ask about; UserError where a value makes no sense."""
    for name in ("sensors", "cameras", "hz", "frame_hz"):
        if not 0 <= getattr(arguments, name) <= 1e9:
            raise UserError(f"--{name.replace('_', '-')} {getattr(arguments, name):g} is not between 0 and a billion")
    if arguments.fps is not None and not 0 < arguments.fps <= 1000:
        raise UserError(f"--fps {arguments.fps:g} is not between 0 and 1000")
    width, times, height = arguments.size.partition("x")
    if not (times and width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise UserError(f'--size "{arguments.size}" is not WIDTHxHEIGHT in pixels')
    size = int(width), int(height)
    found: list[SensorDemand | CameraDemand] = []
    for fleet in load_fleets(arguments.manifests).values():
        found += _fleet_demands(fleet, arguments, size)
    if arguments.sensors:
        found.append(SensorDemand("sensors", arguments.sensors, arguments.hz, arguments.frame_hz))
    if arguments.cameras:
        found.append(CameraDemand("cameras", arguments.cameras, arguments.fps or 15.0, arguments.codec, *size))
    return found


def _fleet_demands(
    fleet: Fleet, arguments: argparse.Namespace, size: tuple[int, int]
) -> Sequence[SensorDemand | CameraDemand]:
    spec, capacity, limits = fleet.spec, shard_capacity(fleet), fleet.spec.autoscaling
    shards = spec.shards if limits.mode == "none" or limits.observe else 0
    count = len(fleet.devices)
    if isinstance(spec, SensorFleetSpec):
        return [SensorDemand(fleet.key, count, arguments.hz, arguments.frame_hz, capacity, limits, shards)]
    assert isinstance(spec, CameraFleetSpec)
    rate = arguments.fps or spec.fps.target
    return [CameraDemand(fleet.key, count, rate, arguments.codec, *size, capacity, limits, shards)]


def sentences(whole: Plan, demands: Sequence[SensorDemand | CameraDemand], costs: Costs, cores: float) -> list[str]:
    """The plan for people."""
    lines = [f"costs measured {costs.measured}; another machine: embereye bench --calibrate"]
    for need, demand in zip(whole.needs, demands, strict=True):
        lines += [
            "",
            f"{need.name}: {counted(need.devices, 'device')} on {counted(need.shards, 'shard')}",
            *(f"  {x}" for x in need.arithmetic),
        ]
        most = max_devices(demand, whole, cores, costs)
        share = demand.limits.target_utilization
        lines.append(
            f"  most      {most:,} of these on {counted(cores, 'core')} at {share:g} of them, "
            "with all else that is here"
        )
        if need.warning:
            lines.append(f"  BUT       {need.warning}")
    lines += ["", "hub", *(f"  {step}" for step in whole.hub.arithmetic)]
    if whole.hub.warning:
        lines.append(f"  BUT       {whole.hub.warning}")
    machines = "this machine is enough" if whole.cores <= 0.7 * cores else "more than one machine, or fewer devices"
    lines += [
        "",
        f"in all: {whole.cores:.2f} cores, {whole.memory_mb:,.0f} MB, {whole.inward / MB:.2f} MB/s from devices; with "
        f"{counted(cores, 'core')}: {machines}",
    ]
    return lines


def to_json(whole: Plan, demands: Sequence[SensorDemand | CameraDemand], costs: Costs, cores: float) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "costs": costs.measured,
        "needs": [
            asdict(need) | {"mostOnOneMachine": max_devices(demand, whole, cores, costs)}
            for need, demand in zip(whole.needs, demands, strict=True)
        ],
        "hub": asdict(whole.hub),
        "cores": whole.cores,
        "memoryMb": whole.memory_mb,
        "bytesPerSecond": whole.inward,
    }
