"""Run one sensor shard: device lines over TCP and gRPC Ingest in, evidence and coverage out to the hub."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.addons import addon_modules
from embereye.sensor.archive import RETENTION_BYTES, Telemetry
from embereye.sensor.shard import SensorShard
from embereye.sensor.source import ReadingSource
from embereye.shard.service import ShardProcess
from embereye_cli.options import Option
from embereye_cli.processes import shard_options


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    shard_options.add_arguments(parser)
    Option("--telemetry", "folder to archive raw readings in, as Parquet files", type=Path,
           metavar="DIR").add_to(parser)  # fmt: skip
    Option("--telemetry-bytes", "largest size of that archive (%(default)s)", default=str(RETENTION_BYTES), type=int,
           metavar="N").add_to(parser)  # fmt: skip


def sources() -> dict[str, Callable[[], ReadingSource]]:
    """The makers of the sources that add-ons read, by scheme."""
    return {scheme: module.open_source for module in addon_modules("sensors") for scheme in module.SCHEMES}


def run(arguments: Namespace) -> int:
    """Serve until SIGTERM, or until the operator has drained the shard."""
    lifecycle.configure_logging()
    options = shard_options.parse_options(arguments)
    telemetry = Telemetry(arguments.telemetry, arguments.telemetry_bytes) if arguments.telemetry else None
    return lifecycle.run(lambda stop: ShardProcess(SensorShard(telemetry, sources()), options).run(stop))
