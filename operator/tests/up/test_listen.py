"""`embereye up --listen`: devices and people come from other machines, our own processes stay among themselves."""

import asyncio
import errno
import json
import os
import shlex
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from embereye.client import Client
from embereye.process.addresses import LOOPBACK, outward_address
from embereye.process.lifecycle import UserError
from embereye.process.tls.trust import trusting
from embereye_operator.runtime.local.runtime import Reach, check_port, embereye_command
from embereye_operator.up.options import UpOptions

from .test_up import SENSORS, House, free_port, house, refused

OPEN = "  access: {open: true}\n"


def ask(running: House, path: str) -> Any:
    """What the console answers, over TLS, to who shows the admin's token."""
    context = trusting(running.data / "identity/authority/ca.crt")
    token = Path(running.endpoints["adminTokenFile"]).read_text().strip()
    request = urllib.request.Request(
        f"{running.endpoints['console']}{path}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:
        return json.load(answer)


def answers(host: str, address: str) -> bool:
    """Whether anything listens at the port of `address` on `host`."""
    port = int(address.removeprefix("http://").partition("/")[0].rpartition(":")[2])
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, port)) == 0


@pytest.mark.skipif(outward_address() == LOOPBACK, reason="this machine has no address but loopback")
async def test_devices_and_people_come_in_by_this_machines_address_and_nobody_else(tmp_path: Path) -> None:
    here = outward_address()
    async with house(tmp_path, "--listen", "0.0.0.0", shards=2, more=OPEN) as running:
        fleet = running.endpoints["fleets"]["default/sensors/hall"]
        assert running.endpoints["console"].startswith(f"https://{here}:")
        assert fleet["service"]["tcp"] == f"{here}:{running.tcp}"
        _, writer = await asyncio.open_connection(here, running.tcp)
        async with Client(fleet["service"]["grpc"]) as client:
            # Whichever shard it reaches first, it is sent on to its owner's own address.
            for _ in range(600):
                client.send("s-02", smoke_adc=283, gas_adc=400, flame_detected=False)
                writer.write(b"#Sensors-01:ADC1=280,ADC2=1300,ADC3=2,DIO=0!\r\n")
                await asyncio.sleep(0.1)
                told = await asyncio.to_thread(ask, running, "v1/devices")
                devices = {entry["id"]: entry for entry in told["devices"]}
                if len(devices) == 2 and all(entry["covered"] for entry in devices.values()):
                    break
            assert await client.flush(30)
        assert all(entry["covered"] for entry in devices.values()), devices
        writer.close()
        for shard in fleet["shards"].values():
            assert shard["grpc"].startswith(f"{here}:")
            assert not answers(here, shard["metrics"])
            assert answers(LOOPBACK, shard["metrics"])
        assert not answers(here, running.endpoints["hubMetrics"])
        assert not answers(here, running.endpoints["metrics"])
        hub, console = (int(running.endpoints[name].strip("/").rpartition(":")[2]) for name in ("hub", "console"))
        options = UpOptions(
            manifests=[], data=running.data, reach=Reach("0.0.0.0", here), hub_port=hub, console_port=console
        )
        told = options.link_command()
        program, *words = shlex.split(told)
        process = await asyncio.create_subprocess_exec(*embereye_command(*words), stdout=asyncio.subprocess.PIPE)
        link, _ = await asyncio.wait_for(process.communicate(), 60)
        assert (program, link.decode().partition("login#")[0]) == ("embereye", running.endpoints["console"])
        for command in (["alarms", "list", "--json"], ["explain", "device", "s-01", "--json"]):
            words = [*command, "--data", str(running.data)]
            process = await asyncio.create_subprocess_exec(*embereye_command(*words), stdout=asyncio.subprocess.PIPE)
            printed, _ = await asyncio.wait_for(process.communicate(), 60)
            assert json.loads(printed.splitlines()[0])["zone"], "a command finds the hub and its certificate by itself"


async def test_who_lets_in_other_machines_says_which_devices_are_listened_to(tmp_path: Path) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1))
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port()), "--data", str(tmp_path / "data")]
    sentence = await refused(str(manifest), "--listen", "0.0.0.0", *ports)
    assert sentence.startswith("embereye: default/sensors/hall: spec.access is not set")
    assert "spec.access" in sentence
    assert "no address of this machine" in await refused(str(manifest), "--listen", "router.lan", *ports)


def test_an_address_that_this_machine_has_not_is_told_and_no_port_is_called_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match=r"^--listen 192\.0\.2\.1: not an address of this machine"):  # for documentation
        check_port(free_port(), "the hub", "choose another", "192.0.2.1")

    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "socket", refuse)  # a machine without IPv6
    with pytest.raises(UserError, match=r"^--listen ::: not an address of this machine"):
        check_port(50052, "the hub", "choose another", "::")


@pytest.mark.parametrize(
    ("listen", "outer", "inside"),
    [("127.0.0.1", False, "127.0.0.1"), ("::1", False, "::1"), ("0.0.0.0", True, "127.0.0.1"),
     ("::", True, "127.0.0.1"), ("192.168.1.10", True, "192.168.1.10")],
)  # fmt: skip
def test_loopback_alone_lets_nobody_in(listen: str, outer: bool, inside: str) -> None:
    assert Reach(listen).is_outer is outer
    assert Reach(listen).inside == inside
