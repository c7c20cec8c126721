"""`embereye up --listen`: devices and people connect from other machines; internal ports stay internal."""

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
    """Return the console's answer, over TLS, with the admin's token."""
    context = trusting(running.data / "identity/authority/ca.crt")
    token = Path(running.endpoints["adminTokenFile"]).read_text().strip()
    request = urllib.request.Request(
        f"{running.endpoints['console']}{path}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:
        return json.load(answer)


def answers(host: str, address: str) -> bool:
    """True if anything listens at the port of `address` on `host`."""
    port = int(address.removeprefix("http://").partition("/")[0].rpartition(":")[2])
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, port)) == 0


@pytest.mark.skipif(outward_address() == LOOPBACK, reason="this machine has no address but loopback")
async def test_only_the_open_ports_are_reachable_at_the_machines_address(tmp_path: Path) -> None:
    here = outward_address()
    async with house(tmp_path, "--listen", "0.0.0.0", shards=2, more=OPEN) as running:
        fleet = running.endpoints["fleets"]["default/sensors/hall"]
        assert running.endpoints["console"].startswith(f"https://{here}:")
        assert fleet["service"]["tcp"] == f"{here}:{running.tcp}"
        _, writer = await asyncio.open_connection(here, running.tcp)
        async with Client(fleet["service"]["grpc"]) as client:
            # The first shard that it reaches redirects it to its owner's address.
            for _ in range(600):
                client.send("s-02", smoke_adc=283, gas_adc=400, flame_detected=False)
                writer.write(b"#Sensors-01:ADC1=280,ADC2=1300,ADC3=2,DIO=0!\r\n")
                await asyncio.sleep(0.1)
                answer = await asyncio.to_thread(ask, running, "v1/devices")
                devices = {entry["id"]: entry for entry in answer["devices"]}
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
        answer = options.link_command()
        program, *words = shlex.split(answer)
        process = await asyncio.create_subprocess_exec(*embereye_command(*words), stdout=asyncio.subprocess.PIPE)
        link, _ = await asyncio.wait_for(process.communicate(), 60)
        assert (program, link.decode().partition("login#")[0]) == ("embereye", running.endpoints["console"])
        for command in (["alarms", "list", "--json"], ["explain", "device", "s-01", "--json"]):
            words = [*command, "--data", str(running.data)]
            process = await asyncio.create_subprocess_exec(*embereye_command(*words), stdout=asyncio.subprocess.PIPE)
            printed, _ = await asyncio.wait_for(process.communicate(), 60)
            assert json.loads(printed.splitlines()[0])["zone"], "commands find the hub and its certificate"


async def test_listening_for_other_machines_requires_access_rules(tmp_path: Path) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1))
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port()), "--data", str(tmp_path / "data")]
    sentence = await refused(str(manifest), "--listen", "0.0.0.0", *ports)
    assert sentence.startswith("embereye: default/sensors/hall: spec.access is not set")
    assert "spec.access" in sentence
    assert "not an address of this machine" in await refused(str(manifest), "--listen", "router.lan", *ports)


def test_a_foreign_address_is_explained_and_no_port_called_taken(
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
def test_only_loopback_is_closed_to_other_machines(listen: str, outer: bool, inside: str) -> None:
    assert Reach(listen).is_outer is outer
    assert Reach(listen).inside == inside
