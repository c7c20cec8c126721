"""A real Prometheus beside a site, with our alert rules in a hurry: which alerts a fault fires."""

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from embereye.process.addresses import free_port
from embereye_operator.monitoring.rules import prometheus_rules
from harness.need import PROMETHEUS

FOR = "2s"  # instead of minutes: how long a condition has to hold


class Prometheus:
    """Asked for the alerts that fire."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def firing(self) -> frozenset[str]:
        """The names of all alerts that fire now; none where it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            alerts = (await asyncio.to_thread(self._get, "/api/v1/alerts"))["data"]["alerts"]
            return frozenset(one["labels"]["alertname"] for one in alerts if one["state"] == "firing")
        return frozenset()

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._address}{path}", timeout=3) as answer:
            return json.load(answer)


def hurried_rules() -> dict[str, Any]:
    """Our rules, evaluated every second, whose conditions have to hold for hardly a moment."""
    rules = prometheus_rules()
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "alert" in rule:
                rule["for"] = FOR
    return rules


@asynccontextmanager
async def watching(folder: Path, targets: Path) -> AsyncIterator[Prometheus | None]:
    """A Prometheus that scrapes what `targets` names each second; None where there is none on this machine."""
    if not PROMETHEUS.present():
        yield None
        return
    port = free_port()
    (folder / "rules.yaml").write_text(yaml.safe_dump(hurried_rules()))
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
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        await process.wait()
