"""A real Prometheus with our alert rules in time lapse, to see which alerts a fault fires."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from embereye.process.addresses import free_port
from harness.matrix.rules import lapsed_rules
from harness.need import PROMETHEUS
from harness.servers.prometheus import PrometheusApi

START_SECONDS = 60.0  # time limit for Prometheus to scrape everything


@asynccontextmanager
async def watching(folder: Path, targets: Path) -> AsyncIterator[PrometheusApi | None]:
    """Run a Prometheus that scrapes the `targets` file each second. Yields None if it is not installed."""
    if not PROMETHEUS.present():
        yield None
        return
    port = free_port()
    (folder / "rules.yaml").write_text(yaml.safe_dump(lapsed_rules()))
    jobs = [{"job_name": "embereye", "honor_labels": True,
             "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]}]  # fmt: skip
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": every, "scrape_configs": jobs, "rule_files": [str(folder / "rules.yaml")]}
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", stdout=log, stderr=log,
        )  # fmt: skip
    prometheus, deadline = PrometheusApi(f"127.0.0.1:{port}"), time.monotonic() + START_SECONDS
    try:
        while not await prometheus.is_stable(targets=1) and time.monotonic() < deadline:
            await asyncio.sleep(1)
        yield prometheus
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
