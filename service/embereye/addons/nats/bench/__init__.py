"""The benchmark of evidence by NATS, beside the other alarm paths: `embereye bench hub` runs it."""

import importlib
import os
import tempfile
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye_bench.hub.alarm_path import ROOT, measure, missing
from embereye_bench.report import Benchmark, Result, Scale

NAME, NEEDED = "alarm-path-jetstream", ("POSTGRES", "NATS")


def alarm_path_jetstream(scale: Scale) -> Result:
    """Measure the alarm path through a local nats-server, which fsyncs each report, and then through PostgreSQL."""
    if why := missing(*NEEDED):
        raise UserError(f"{NAME}: {why}")
    postgres = importlib.import_module("harness.servers.postgres")
    nats = importlib.import_module("harness.servers.nats")
    on_disk = ROOT if os.access(ROOT, os.W_OK) else None
    with postgres.run_postgres() as server, tempfile.TemporaryDirectory(dir=on_disk, prefix=".bench-") as folder:
        stream = nats.Nats(Path(folder))
        stream.start()
        try:
            return measure(
                NAME, scale, (50, 100),
                lambda number, data: [
                    str(server.create_database(f"bench{number}")),
                    "--nats", stream.address, "--nats-stream", data.name.strip("."),
                ],
            )  # fmt: skip
        finally:
            stream.stop()


HUB_BENCHMARKS: dict[str, Benchmark] = {NAME: alarm_path_jetstream}
NEEDS = {NAME: NEEDED}
