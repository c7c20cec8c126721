"""The association port of a hub as a process: over TLS and a Unix socket, through a restart, and after SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.servers.certificates import SiteAuthority
from harness.stored import Stored

from embereye.addons.control.client import CALL, ActuatorLink, ControllerLink
from embereye.addons.control.link import Link, LinkError
from embereye.addons.control.pan_tilt import PanTiltHead
from embereye.process.addresses import free_port
from embereye.process.tls.client import ClientTls
from embereye.units import MILLISECOND
from embereye.v1.control_pb2 import Controller, ControlResponse

if TYPE_CHECKING:
    from harness.hubs import HubProcess


@pytest.fixture
def hub(tmp_path: Path, make_hub: Callable[..., HubProcess]) -> HubProcess:
    return make_hub(Stored(tmp_path))


async def dial(address: str, hub: HubProcess, **options: Any) -> Link:
    deadline = time.monotonic() + 20
    while True:
        try:
            return await asyncio.to_thread(lambda: Link(address, CALL, hub.token, **options))
        except LinkError as error:
            if "cannot be reached" not in str(error) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


def steer_once(head: Link, follower: Link) -> bool:
    """Steer a head through the hub; True if the command reaches it. The controller remains connected."""
    actuator = ActuatorLink(head, "head", PanTiltHead(2 * MILLISECOND))
    controller = ControllerLink(follower, "follower", "head", mode=Controller.MODE_FREE_RUNNING)
    controller.step([1.0, 0, 1, 1])
    return not actuator.step().safe


async def test_by_default_the_hub_has_no_association_port(hub: HubProcess) -> None:
    hub.start()
    await hub.ready()
    assert "associations" not in hub.log()


async def test_a_loop_runs_over_tcp_and_a_socket_and_ends_when_the_hub_stops(hub: HubProcess) -> None:
    port, path = free_port(), hub.data / "association"
    hub.start("--association-port", str(port), "--association-socket", str(path))
    await hub.ready()
    links = await dial(f"127.0.0.1:{port}", hub), await dial(f"unix:{path}", hub)
    assert await asyncio.to_thread(steer_once, *links)
    shown = await asyncio.to_thread(hub.get, "/v1/actuators")
    assert isinstance(shown, dict)
    (head,) = shown["actuators"]
    assert (head["name"], head["controller"], head["safe"]) == ("head", "follower", False)
    assert head["outputs"][0] == {"name": "pan", "kind": "angle", "value": 1.0, "measured": 0.0}
    text = str(await asyncio.to_thread(hub.get, "/metrics"))
    for line in (
        "embereye_hub_control_actuators 1.0",
        "embereye_hub_control_controllers 1.0",
        "embereye_hub_control_commands_total 1.0",
        "embereye_hub_control_states_total 1.0",
        "embereye_hub_associations 2.0",
    ):
        assert line in text
    assert hub.process is not None
    hub.process.send_signal(signal.SIGTERM)
    for link in links:
        with pytest.raises(LinkError, match=r"the hub stops|the actuator head is gone"):
            await asyncio.to_thread(link.receive, ControlResponse)
        link.close()
    assert hub.process.wait(10) == 0
    assert not path.exists()


async def test_a_socket_left_by_a_killed_hub_is_replaced(hub: HubProcess) -> None:
    path = hub.data / "association"
    for _ in range(2):
        hub.start("--association-socket", str(path))
        await hub.ready()
        link = await dial(f"unix:{path}", hub)
        hub.kill()
        with pytest.raises(LinkError):
            await asyncio.to_thread(link.receive, ControlResponse)
        link.close()


async def test_the_association_port_uses_the_certificate_of_the_port_for_people(
    hub: HubProcess, tmp_path: Path
) -> None:
    shown = SiteAuthority(tmp_path / "authority").issue("hub", alternatives=["127.0.0.1"])
    stranger = SiteAuthority(tmp_path / "stranger").issue("hub", alternatives=["127.0.0.1"])
    port = free_port()
    address = f"127.0.0.1:{port}"
    hub.start("--association-port", str(port), "--tls", str(shown.folder))
    links = [await dial(address, hub, tls=ClientTls(shown.ca)) for _ in range(2)]
    assert await asyncio.to_thread(steer_once, *links)
    with pytest.raises(LinkError):
        await dial(address, hub, timeout=2.0)
    with pytest.raises(LinkError, match="certificate verify failed") as caught:
        await asyncio.to_thread(lambda: Link(address, CALL, hub.token, tls=ClientTls(stranger.ca)))
    assert isinstance(caught.value.__cause__, ssl.SSLError)
    for link in links:
        link.close()


async def test_an_unavailable_port_is_reported_by_name(hub: HubProcess) -> None:
    hub.start("--association-socket", "/proc/none")
    assert hub.process is not None
    assert await asyncio.to_thread(hub.process.wait, 20) == 2
    assert "cannot listen for associations on /proc/none" in hub.log()
