"""A real Prometheus beside a site, with our alert rules in time lapse: which alerts a fault fires."""

import asyncio
import contextlib
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from embereye.process.addresses import free_port
from harness.matrix.rules import CALM, lapsed_rules, states
from harness.need import PROMETHEUS


class Prometheus:
    """Asked for the alerts that fire."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def alerts(self) -> Mapping[str, str]:
        """The state, "pending" or "firing", of every alert that is not inactive; none where it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            return states((await asyncio.to_thread(self._get, "/api/v1/alerts"))["data"]["alerts"])
        return {}

    async def begun(self) -> None:
        """Wait until it has scraped every process and evaluated every rule, or a minute has gone by."""
        deadline, calm = time.monotonic() + 60, 0
        while calm < CALM and time.monotonic() < deadline:
            await asyncio.sleep(1)
            with contextlib.suppress(OSError, ValueError):
                targets = (await asyncio.to_thread(self._get, "/api/v1/targets"))["data"]["activeTargets"]
                well = bool(targets) and all(one["health"] == "up" for one in targets)
                calm = calm + 1 if well and not await self.alerts() else 0

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._address}{path}", timeout=3) as answer:
            return json.load(answer)


@asynccontextmanager
async def watching(folder: Path, targets: Path) -> AsyncIterator[Prometheus | None]:
    """A Prometheus that scrapes what `targets` names each second; None where there is none on this machine."""
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
    prometheus = Prometheus(f"http://127.0.0.1:{port}")
    try:
        await prometheus.begun()
        yield prometheus
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
