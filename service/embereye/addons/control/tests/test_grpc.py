"""Control sessions over gRPC: the same rules as over associations, with gRPC statuses for broken ones."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from embereye.addons.control.actuators import Actuators
from embereye.addons.control.pan_tilt import PanTiltHead
from embereye.addons.control.service import ROLES, ControlService, handshake_recorder, worst_state
from embereye.hub.databases.store import StoreThreads
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.services.access import AccessCheck
from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.tasks import Tasks
from embereye.v1.control_pb2 import Command, Controller, ControlRequest, ControlResponse, Handshake, State
from embereye.v1.control_pb2_grpc import ControlStub, add_ControlServicer_to_server

TOKEN = "an-admins-token-of-forty-characters-or-so"
HEAD = ControlRequest(handshake=Handshake(version=2, name="head", actuator=PanTiltHead(2_000_000).actuator))
STEERS = ControlRequest(
    handshake=Handshake(
        version=2,
        name="follower",
        controller=Controller(actuator="head", mode=Controller.MODE_SYNCHRONISED, deadline_ns=10**9),
    )
)
Call = grpc.aio.StreamStreamCall[ControlRequest, ControlResponse]


@dataclass
class Served:
    hub: Hub
    actuators: Actuators
    address: str
    link: grpc.aio.Channel

    async def session(self, *requests: ControlRequest, link: grpc.aio.Channel | None = None) -> Call:
        call = ControlStub(link or self.link).Session(timeout=20)
        for request in requests:
            await call.write(request)
        return call


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    store = StoreThreads(tmp_path)
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    actuators = Actuators(worst=worst_state(hub))
    service = Service(
        add_ControlServicer_to_server, ControlService(actuators, handshake_recorder(hub)), "embereye.v1.Control"
    )
    server = GrpcServer([service], interceptors=[AccessCheck(hub.access, ROLES)])
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with Tasks() as tasks, channel(f"127.0.0.1:{port}", token=TOKEN) as link:
        tasks.start(hub.run(), name="hub")
        yield Served(hub, actuators, f"127.0.0.1:{port}", link)
    await server.stop(0)
    await store.close()


async def read(call: Call) -> ControlResponse:
    response = await call.read()
    assert isinstance(response, ControlResponse), response
    return response


async def status(call: Call) -> tuple[grpc.StatusCode, str]:
    async def read_all() -> None:
        while await call.read() is not grpc.aio.EOF:
            pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all()
    return caught.value.code(), caught.value.details() or ""


def state(tick: int) -> ControlRequest:
    return ControlRequest(state=State(tick=tick, measured=[0] * 4, sensors=[tick, 0, 0, 0]))


def command(sequence: int, pan: float, tick: int = 0) -> ControlRequest:
    return ControlRequest(command=Command(sequence=sequence, values=[pan, 0, 1, 0], tick=tick))


async def test_states_and_commands_take_turns(served: Served) -> None:
    head = await served.session(HEAD)
    assert (await read(head)).welcome.version == 2
    follower = await served.session(STEERS)
    assert [output.name for output in (await read(follower)).welcome.actuator.outputs] == [
        "pan",
        "tilt",
        "speed",
        "lamp",
    ]
    for tick in range(1, 30):
        await head.write(state(tick))
        seen = (await read(follower)).state
        assert (seen.tick, seen.sensors[0], seen.worst) == (tick, tick, 1)
        await follower.write(command(tick, tick / 100, tick))
        answer = (await read(head)).command
        assert (answer.tick, answer.values[0], answer.safe) == (tick, tick / 100, False)
    await follower.done_writing()
    assert await follower.read() is grpc.aio.EOF
    await head.write(state(30))
    assert (await read(head)).command.safe
    await served.hub.committer.flush(5)
    entries = await served.hub.history.audit(0, 10)
    assert [(entry.action, entry.subject, entry.detail) for entry in entries] == [
        ("steer", "head", "as follower"), ("connect actuator", "head", ""),
    ]  # fmt: skip
    head.cancel()


@pytest.mark.parametrize(
    ("requests", "code", "sentence"),
    [
        ([command(1, 0)], grpc.StatusCode.INVALID_ARGUMENT, "must be a handshake"),
        ([HEAD, HEAD], grpc.StatusCode.INVALID_ARGUMENT, "an actuator sends states after its handshake"),
        ([STEERS], grpc.StatusCode.FAILED_PRECONDITION, 'no actuator "head" is connected'),
    ],
)
async def test_a_broken_rule_ends_the_session_with_a_reason(
    served: Served, requests: list[ControlRequest], code: grpc.StatusCode, sentence: str
) -> None:
    refused, details = await status(await served.session(*requests))
    assert (refused, sentence in details) == (code, True)
    while len(served.actuators):
        await asyncio.sleep(0.01)


async def test_a_lost_actuator_ends_the_call_of_its_controller(served: Served) -> None:
    head = await served.session(HEAD)
    await read(head)
    follower = await served.session(STEERS)
    await read(follower)
    head.cancel()
    assert await status(follower) == (
        grpc.StatusCode.UNAVAILABLE, "the actuator head is gone. Dial again once it is back.",
    )  # fmt: skip


async def test_a_viewer_cannot_steer(served: Served) -> None:
    token = await served.hub.access.create_token(Principal("admin", Role.ADMIN, "admin"), "guest", Role.VIEWER)
    async with channel(served.address, token=token) as link:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ControlStub(link).Session(timeout=20).read()  # refused before it says a word
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_an_interrupted_call_leaves_nothing_behind(served: Served) -> None:
    for _ in range(20):
        head = await served.session(HEAD)
        await read(head)
        head.cancel()
        while len(served.actuators):
            await asyncio.sleep(0.01)
