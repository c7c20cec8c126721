"""The Go client: its own tests, and a device that is steered through a real hub."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from harness.need import GO_CLIENT, program

from embereye.addons.control.client import CALL, ControllerLink
from embereye.addons.control.link import Link, LinkError
from embereye.addons.control.own_hub import OwnHub, running_hub
from embereye.units import SECOND
from embereye.v1.control_pb2 import Output

pytestmark = pytest.mark.needs(GO_CLIENT)


def test_the_go_clients_own_tests_pass() -> None:
    done = subprocess.run(
        [str(program("embereye-control.test"))], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def steer(hub: OwnHub) -> ControllerLink:
    """Steer the valve, as soon as it is connected."""
    deadline = time.monotonic() + 60
    while True:
        link = Link(hub.unix, CALL, hub.token)
        try:
            return ControllerLink(link, "test", "valve", deadline_ns=SECOND)
        except LinkError:
            link.close()
            assert time.monotonic() < deadline, "the valve is not connected"
            time.sleep(0.05)


@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_a_device_in_go_is_steered_in_lockstep_and_is_safe_whenever_it_is_not(tmp_path: Path, way: str) -> None:
    said, printed = tmp_path / "said", tmp_path / "printed"
    with running_hub() as hub, said.open("wb") as errors, printed.open("wb") as output:
        device = subprocess.Popen(
            [str(program("embereye-valve")), "--hub", getattr(hub, way), "--period", "2ms"],
            stdout=output, stderr=errors, env={**os.environ, "EMBEREYE_TOKEN": hub.token},
        )  # fmt: skip
        try:
            side = steer(hub)
            assert [(output.name, output.kind) for output in side.actuator.outputs] == [
                ("valve", Output.KIND_OPENING), ("lamp", Output.KIND_SWITCH),
            ]  # fmt: skip
            state, ticks = side.first_state(), []
            for number in range(1, 101):
                state = side.step([number / 200, 1.0], state.tick)
                ticks.append(state.tick)
            assert ticks == list(range(ticks[0], ticks[0] + 100))
            assert (state.measured[0], state.sensors[0]) == (0.5, 5.5)
            side.link.close()
            deadline = time.monotonic() + 60
            while "valve 1.00 lamp 0: no controller" not in printed.read_text():
                assert time.monotonic() < deadline, printed.read_text()
                time.sleep(0.02)
            side = steer(hub)
            side.step([0.25, 0.0], side.first_state().tick)
            side.link.close()
        finally:
            if device.poll() is None:
                device.terminate()
            assert device.wait(30) == 0
    assert printed.read_text().splitlines()[-1].startswith(("valve 1.00 lamp 0: ", "valve 1.00"))


def test_a_device_in_go_reports_why_it_is_refused(tmp_path: Path) -> None:
    with running_hub() as hub:
        device = subprocess.Popen(
            [str(program("embereye-valve")), "--hub", hub.tcp], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "EMBEREYE_TOKEN": "wrong"},
        )  # fmt: skip
        try:
            assert device.stderr is not None
            assert device.stderr.readline() == (
                "safe: unknown token or session: it may have been revoked or have expired\n"
            )
        finally:
            device.kill()
            device.communicate()
