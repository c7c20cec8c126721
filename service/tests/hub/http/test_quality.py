"""False alarms per day of watching, over HTTP and as a command prints them."""

import asyncio
import sys
import time
from importlib.metadata import version

import pytest

from embereye.units import DAY
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, Ledger

from .served import FLEET, TOKEN, Served


def report_heard_since(served: Served, since_ns: int) -> None:
    ledger = Ledger(offered=10, analysed=10, since_ns=since_ns)
    device = DeviceStatus(id="s-01", zone="hall", covered=True, ledger=ledger)
    served.hub.coverage.report(Coverage(fleet=FLEET, shard="hall-0", time_ns=time.time_ns(), devices=[device]))


async def mark_false(served: Served) -> None:
    _, body = await served.get("/v1/alarms")
    (alarm,) = body["alarms"]
    assert (await served.post(f"/v1/alarms/{alarm['alarm']}/false", {"reason": "a heat gun"}))[0] == 200


async def test_a_marked_alarm_is_a_rate_with_its_limits(served: Served) -> None:
    report_heard_since(served, time.time_ns() - 10 * DAY)
    await served.alarm()
    await mark_false(served)
    status, body = await served.get("/v1/quality")
    site = next(row for row in body["rows"] if row["scope"] == "site")
    assert (status, site["alarms"], site["falseAlarms"], body["truncated"]) == (200, 1, 1, False)
    assert site["version"] == version("embereye")
    assert site["deviceDays"] == pytest.approx(10, abs=0.1)
    assert site["perDay"] == pytest.approx(0.1, rel=0.02)
    assert (site["low"], site["high"]) == pytest.approx((0.00253, 0.557), rel=0.02)
    assert {row["scope"] for row in body["rows"]} == {"site", "kind", "zone", "device"}


async def test_a_site_without_devices_has_no_rows(served: Served) -> None:
    assert (await served.get("/v1/quality"))[1]["rows"] == []


async def test_the_command_prints_the_upper_limit(served: Served) -> None:
    report_heard_since(served, time.time_ns() - 30 * DAY)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "report", "quality", "--console", served.base, "--last", "40d",
        env={"EMBEREYE_TOKEN": TOKEN}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err) == (0, b"")
    header, site, _ = out.decode().splitlines()
    assert header.split() == ["SUBJECT", "VERSION", "DEVICE-DAYS", "ALARMS", "FALSE", "FALSE", "A", "DAY", "AT", "MOST"]
    assert site.split() == ["all", "devices", version("embereye"), "30.00", "0", "0", "0", "0.1"]
