"""Estimate the hardware that fleets need: shards, cores and memory, with the arithmetic."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import NotFoundError, UserError
from embereye.units import counted
from embereye_cli.terminal import camel_keys
from embereye_cli.values import amount, check_ranges
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
    parser.add_argument("manifests", nargs="*", type=Path, metavar="FLEET.yaml", help="manifests of fleets")
    parser.add_argument(
        "--sensors", type=amount, default=0, metavar="N", help="number of sensors, instead of a manifest"
    )
    parser.add_argument("--hz", type=float, default=10.0, help="readings per second and sensor (%(default)s)")
    parser.add_argument(
        "--frame-hz", type=float, default=0.0, help="thermal frames per second and sensor (%(default)s)"
    )
    parser.add_argument("--cameras", type=amount, default=0, metavar="N", help="number of cameras")
    parser.add_argument("--fps", type=float, default=None, help="frames per second and camera (15, or the manifest's)")
    parser.add_argument("--codec", choices=CODECS, default="jpeg", help="format of the frames (%(default)s)")
    parser.add_argument("--size", default="640x480", metavar="WIDTHxHEIGHT", help="size of the frames (%(default)s)")
    parser.add_argument("--cores", type=float, default=None, help="cores of the machine (this one's)")
    parser.add_argument("--costs", type=Path, metavar="FILE",
                        help="file of `embereye bench --calibrate` (default: the costs of this version)")  # fmt: skip
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="default: text")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as --output json")


def run(arguments: argparse.Namespace) -> int:
    """Calculate and print; return 1 if the fleets or the hub cannot do what is declared."""
    costs = load_costs(arguments.costs)
    demands = demands_of(arguments)
    if not demands:
        raise UserError("nothing to plan. Name manifests, or give --sensors N or --cameras N.")
    cores = arguments.cores if arguments.cores is not None else float(os.cpu_count() or 1)
    if not 0 < cores <= 1e6:
        raise UserError(f"--cores {cores:g} is not more than 0")
    whole = plan(demands, costs)
    if arguments.output == "json":
        print(json.dumps(camel_keys(to_json(whole, demands, costs, cores)), indent=1, ensure_ascii=False))
    else:
        print("\n".join(sentences(whole, demands, costs, cores)))
    return 1 if any(need.warning for need in (*whole.needs, whole.hub)) else 0


def load_costs(path: Path | None) -> Costs:
    """The costs in `path`, or those recorded with this version. UserError."""
    file = path or resources.files("embereye_operator.decide.capacity") / "recorded.json"
    try:
        return parse_costs(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"--costs {path} does not exist") from error
    except OSError as error:
        raise UserError(f"--costs {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"--costs {path} is not a file of `embereye bench --calibrate`: {error}") from error


def demands_of(arguments: argparse.Namespace) -> list[SensorDemand | CameraDemand]:
    """The devices that the arguments describe; UserError for an impossible value."""
    check_ranges(arguments, hz=(0, 1e9), frame_hz=(0, 1e9), fps=(0.001, 1000))
    width, times, height = arguments.size.partition("x")
    if not (times and width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise UserError(f'--size "{arguments.size}" is not WIDTHxHEIGHT in pixels')
    size = int(width), int(height)
    demands: list[SensorDemand | CameraDemand] = []
    for fleet in load_fleets(arguments.manifests).values():
        demands += _fleet_demands(fleet, arguments, size)
    if arguments.sensors:
        demands.append(SensorDemand("sensors", arguments.sensors, arguments.hz, arguments.frame_hz))
    if arguments.cameras:
        demands.append(CameraDemand("cameras", arguments.cameras, arguments.fps or 15.0, arguments.codec, *size))
    return demands


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
    lines = [f"costs measured {costs.measured}; for another machine: embereye bench --calibrate"]
    for need, demand in zip(whole.needs, demands, strict=True):
        lines += [
            "",
            f"{need.name}: {counted(need.devices, 'device')} on {counted(need.shards, 'shard')}",
            *(f"  {step}" for step in need.arithmetic),
        ]
        most = max_devices(demand, whole, cores, costs)
        share = demand.limits.target_utilization
        lines.append(
            f"  most      {most:,} of these on {counted(cores, 'core')} at a load of {share:g}, "
            "next to all other fleets in this plan"
        )
        if need.warning:
            lines.append(f"  BUT       {need.warning}")
    lines += ["", "hub", *(f"  {step}" for step in whole.hub.arithmetic)]
    if whole.hub.warning:
        lines.append(f"  BUT       {whole.hub.warning}")
    machines = "this machine is enough" if whole.cores <= 0.7 * cores else "use more machines, or fewer devices"
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
