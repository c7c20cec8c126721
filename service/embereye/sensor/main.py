"""Run one sensor shard: device lines over TCP and gRPC Ingest in, evidence and coverage out to the hub."""

import asyncio
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process import lifecycle
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardOptions, ShardProcess


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    ShardOptions.add_arguments(parser)
    telemetry = os.environ.get("EMBEREYE_TELEMETRY", "")
    parser.add_argument("--telemetry", type=Path, default=Path(telemetry) if telemetry else None, metavar="DIR",
                        help="keep raw readings as Parquet files, needs pyarrow [EMBEREYE_TELEMETRY]")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Serve until SIGTERM, or until the operator has drained the shard."""
    lifecycle.configure_logging()
    options = ShardOptions.parse(arguments)

    async def serve(stop: asyncio.Event) -> int:
        return await ShardProcess(SensorShard(arguments.telemetry), options).run(stop)

    return lifecycle.run(serve)
