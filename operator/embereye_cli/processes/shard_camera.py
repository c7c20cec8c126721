"""Run one camera shard: video and pictures in, evidence and coverage out to the hub."""

import argparse

from embereye.process import lifecycle
from embereye.shard.service import ShardProcess
from embereye_cli.processes import shard_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a shard."""
    shard_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run one camera shard until SIGTERM, or until the operator has drained it; return the exit code."""
    lifecycle.configure_logging()
    options = shard_options.parse_options(arguments)
    from embereye.camera.shard import CameraShard

    return lifecycle.run(lambda stop: ShardProcess(CameraShard(), options).run(stop))
