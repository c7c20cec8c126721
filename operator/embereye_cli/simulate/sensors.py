"""Simulate thermal and gas sensors over the real protocol; with --clients, load-test a shard."""

import argparse
import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.addresses import address_option
from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls
from embereye.sim.load.figures import ClientFigures
from embereye.sim.load.run import LoadTest
from embereye.sim.load.sensors import SensorLoad, send_sensors
from embereye.sim.scenes.fire import parse_fire
from embereye.sim.sensors import SensorSpec, run_sensors
from embereye.units import counted
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import SerialNumber
from embereye_cli.hub.token import add_device_token_option, device_token
from embereye_cli.simulate.load_options import (
    add_load_options,
    check_load_options,
    is_load_test,
    packets_of,
    run_load,
    thresholds_of,
)
from embereye_cli.simulate.tls_options import add_tls_options, tls_options
from embereye_cli.values import check_ranges, seconds, seed


def parse_devices(text: str) -> list[SensorSpec]:
    """Devices from "id=zone,id=zone"; ArgumentTypeError if one is malformed or has no zone."""
    specs: list[SensorSpec] = []
    for part in text.split(","):
        name, _, zone = part.strip().partition("=")
        try:
            encode(SerialNumber(name))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from error
        if not zone:
            raise argparse.ArgumentTypeError(f"{name} has no zone. Write {name}=ZONE.")
        if any(spec.id == name for spec in specs):
            raise argparse.ArgumentTypeError(f"{name} is listed twice. Remove one.")
        specs.append(SensorSpec(name, zone))
    return specs


def count_devices(count: int) -> list[SensorSpec]:
    """`count` devices sensor-0001, sensor-0002 and so on, four to a zone: zone-01, zone-02 and so on."""
    return [SensorSpec(f"sensor-{number + 1:04}", f"zone-{number // 4 + 1:02}") for number in range(count)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye simulate sensors`."""
    parser.add_argument("--target", required=True, metavar="HOST:PORT", help="text listener of a sensor shard")
    devices = parser.add_mutually_exclusive_group()
    devices.add_argument(
        "--count", type=int, default=1, help="simulate sensor-0001 to sensor-N, four to a zone (default 1)"
    )
    devices.add_argument("--devices", type=parse_devices, metavar="ID=ZONE,…", help="simulate these")
    devices.add_argument("--clients", type=int, metavar="N", help="load test by sensor-0001 to sensor-N")
    parser.add_argument("--rate", type=float, default=10.0,
                        help="readings per second and device (10); 0: none; in a load test: packets")  # fmt: skip
    parser.add_argument("--frame-rate", type=float, default=None, help="thermal frames per second and device (4)")
    parser.add_argument("--seed", type=seed, default=0, help="the same seed gives the same calibrations and noise")
    parser.add_argument("--fire", action="append", default=[], metavar="at=S,for=S,device=ID|zone=ZONE",
                        help="a fire: start and duration in seconds, and its place; repeatable")  # fmt: skip
    parser.add_argument("--grpc", action="store_true", help="send by gRPC: the target is a shard's gRPC port")
    add_device_token_option(parser, "--grpc")
    add_tls_options(parser)
    parser.add_argument("--spool", type=Path, metavar="FILE", help="with --grpc: store unacknowledged readings in FILE")
    parser.add_argument("--duration", type=seconds, default=0.0, help="seconds to run, as --for; 0: until stopped")
    add_load_options(parser, "packets")
    parser.add_argument("--include-frames", action="store_true",
                        help="in a load test: every second packet is a thermal frame")  # fmt: skip


def _check_options(arguments: argparse.Namespace) -> None:
    address_option("--target", arguments.target)
    if arguments.count < 1:
        raise UserError(f"--count {arguments.count} is not at least 1")
    if is_load_test(arguments) and arguments.frame_rate is not None:
        raise UserError("--frame-rate has no effect in a load test: --include-frames makes every second packet a frame")
    check_ranges(arguments, rate=(0, 1e6), frame_rate=(0, 1e6), duration=(0, 1e6))
    check_load_options(arguments, arguments.rate)


def run(arguments: argparse.Namespace) -> int:
    """Simulate until stopped, then print what was sent as one line."""
    lifecycle.configure_logging()
    _check_options(arguments)
    frame_rate = 4.0 if arguments.frame_rate is None else arguments.frame_rate
    count = arguments.count if arguments.clients is None else arguments.clients
    specs = arguments.devices or count_devices(count)
    fires = [parse_fire(text) for text in arguments.fire]
    for fire, text in zip(fires, arguments.fire, strict=True):
        if not any(fire.is_visible_to(spec.id, spec.zone) for spec in specs):
            raise UserError(f"--fire {text}: no simulated device is there")

    tls = tls_options(arguments)
    if is_load_test(arguments):
        if fires or arguments.spool:
            raise UserError("--fire and --spool have no effect in a load test: simulate devices in another process")
        return lifecycle.run(lambda stop: _load(arguments, specs, tls, stop))

    async def main(stop: asyncio.Event) -> int:
        if arguments.seconds:
            asyncio.get_running_loop().call_later(arguments.seconds, stop.set)
        try:
            stats = await run_sensors(
                specs,
                arguments.target,
                stop,
                rate=arguments.rate,
                frame_rate=frame_rate,
                seed=arguments.seed,
                fires=fires,
                grpc=arguments.grpc,
                spool=arguments.spool,
                token=device_token(arguments.token),
                tls=tls,
            )
        except sqlite3.Error as error:
            raise UserError(f"--spool {arguments.spool} cannot be used: {error}") from error
        acknowledged = f"; {stats.acknowledged} acknowledged, {stats.waiting} not" if arguments.grpc else ""
        sent = "" if arguments.grpc else f", {counted(stats.sent_bytes, 'byte')}"
        print(
            f"{counted(len(specs), 'device')}: {counted(stats.readings, 'reading')}, {counted(stats.frames, 'frame')}, "
            f"{counted(stats.calibrations, 'calibration')}{sent}; "
            f"{counted(stats.connections, 'connection')}, {stats.failures} failed, {stats.lost} lost; "
            f"{counted(stats.dropped, 'packet')} dropped because the server was too slow"
            f"{acknowledged}"
        )
        return 0 if stats.connections and (stats.acknowledged or not stats.waiting) else 1

    return lifecycle.run(main)


async def _load(
    arguments: argparse.Namespace, specs: Sequence[SensorSpec], tls: ClientTls | None, stop: asyncio.Event
) -> int:
    rate, packets = arguments.rate, packets_of(arguments, arguments.rate)
    load = SensorLoad(
        target=arguments.target, rate=rate, packets=packets, frames=arguments.include_frames, grpc=arguments.grpc,
        token=device_token(arguments.token), tls=tls, seed=arguments.seed,
    )  # fmt: skip
    figures = [ClientFigures(spec.id) for spec in specs]
    latency = "due until the shard has acknowledged it" if load.grpc else "due until the kernel has taken it"
    settings = {"protocol": "grpc" if load.grpc else "text", "frames": load.frames, "latency": latency}
    test = LoadTest(load.target, rate, packets, thresholds_of(arguments), settings)
    return await run_load(arguments, test, figures, lambda: send_sensors(figures, load), stop)
