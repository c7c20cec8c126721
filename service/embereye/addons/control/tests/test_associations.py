"""Associations on loopback: admission, limits, and how invalid messages end them."""

import asyncio
import random
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from embereye.addons.control import associated as associated_module
from embereye.addons.control import associations
from embereye.addons.control.actuators import Actuators
from embereye.addons.control.associated import associated
from embereye.addons.control.associations import Associations
from embereye.addons.control.client import CALL, ActuatorLink, ControllerLink
from embereye.addons.control.echo import CALL as ECHO
from embereye.addons.control.echo import echo_call
from embereye.addons.control.link import Link, LinkError, Wait
from embereye.addons.control.pan_tilt import PanTiltHead
from embereye.addons.control.stream import control_call
from embereye.hub.databases.store import StoreThreads
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role, read_scope
from embereye.process.tasks import Tasks
from embereye.units import MILLISECOND, SECOND
from embereye.v1.association_pb2 import Associate, Associated
from embereye.v1.control_pb2 import Controller, ControlRequest, ControlResponse, State
from embereye.v1.echo_pb2 import EchoRequest, EchoResponse
from embereye.wire.delimited import DelimitedReader, delimited

TOKEN = "an-admins-token-of-forty-characters-or-so"
HOST = "127.0.0.1"
ADMIN = Principal("admin", Role.ADMIN, "admin")


class Served:
    def __init__(self, hub: Hub, associations: Associations, actuators: Actuators, port: int, path: Path) -> None:
        self.hub, self.associations, self.actuators = hub, associations, actuators
        self.port, self.path = port, path

    def link(self, token: str = TOKEN, *, unix: bool = False, call: str = CALL, **options: Any) -> Link:
        return Link(f"unix:{self.path}" if unix else f"{HOST}:{self.port}", call, token, **options)

    def dial(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=10)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    store = StoreThreads(tmp_path)
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    actuators = Actuators(time.monotonic_ns, asyncio.get_running_loop().call_later)
    listening = Associations(
        hub.access, {CALL: control_call(actuators, lambda who, handshake: None), ECHO: echo_call()}, most=16
    )
    port = await listening.listen(HOST, 0, None)
    await listening.listen_unix(tmp_path / "socket")
    async with Tasks() as tasks:
        tasks.start(hub.run(), name="hub")
        tasks.start(listening.run(), name="associations")
        yield Served(hub, listening, actuators, port, tmp_path / "socket")
        await listening.close("the hub stops")
    await store.close()


async def away(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread: the client blocks, and the hub runs on this thread."""
    return await asyncio.wait_for(asyncio.to_thread(work), 20)


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("wait", list(Wait))
async def test_a_head_is_steered_through_the_hub_in_lockstep(served: Served, wait: Wait, unix: bool) -> None:
    def steer() -> list[State]:
        head = PanTiltHead(2 * MILLISECOND)
        with served.link(unix=unix) as device_link, served.link(unix=unix, wait=wait) as other:
            actuator = ActuatorLink(device_link, "head", head)
            controller = ControllerLink(other, "follower", "head", deadline_ns=SECOND)
            stop = threading.Event()

            def run() -> None:
                while not stop.is_set():
                    actuator.step()

            device = threading.Thread(target=run)
            device.start()
            states = [controller.first_state()]
            for _ in range(200):
                states.append(controller.step([0.5, 0.1, 2.0, 1.0], states[-1].tick))
            stop.set()
            other.close()
            device.join()
        return states

    states = await away(steer)
    assert [state.tick for state in states] == list(range(1, 202))
    assert 0.4 < states[-1].measured[0] < 0.55
    assert served.actuators.counts.missed == 0


async def test_only_the_hubs_user_can_open_the_unix_socket(served: Served) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("unix", [False, True])
async def test_a_client_without_a_valid_token_is_refused(served: Served, unix: bool) -> None:
    for token in ("", "wrong", TOKEN + "x"):
        with pytest.raises(LinkError, match="unknown token or session"):
            await away(lambda token=token: served.link(token, unix=unix))
    assert served.hub.access.refused == 3


async def test_a_viewer_cannot_steer_an_actuator(served: Served) -> None:
    token = await served.hub.access.create_token(ADMIN, "guest", Role.VIEWER)
    with pytest.raises(LinkError, match="guest is viewer: this takes the role operator"):
        await away(lambda: served.link(token))


async def test_an_operator_of_some_zones_cannot_steer_an_actuator(served: Served) -> None:
    token = await served.hub.access.create_token(ADMIN, "guard", Role.OPERATOR, read_scope(["default/hall"]))
    with pytest.raises(LinkError, match="guard is limited to default/hall: this is about all zones"):
        await away(lambda: served.link(token))


async def test_an_unknown_stream_is_answered_with_the_existing_ones(served: Served) -> None:
    with pytest.raises(LinkError, match=f'no stream "x/Y" for associations; there are: {CALL}, {ECHO}'):
        await away(lambda: served.link(call="x/Y"))


async def test_a_revoked_token_ends_its_associations_and_their_control(served: Served) -> None:
    token = await served.hub.access.create_token(ADMIN, "crane", Role.OPERATOR)
    head = PanTiltHead(2 * MILLISECOND)
    device_link, other = await away(served.link), await away(lambda: served.link(token))
    actuator = await away(lambda: ActuatorLink(device_link, "head", head))
    controller = await away(lambda: ControllerLink(other, "follower", "head", mode=Controller.MODE_FREE_RUNNING))
    await away(lambda: controller.step([1.0, 0, 1, 0]))
    assert not (await away(actuator.step)).safe
    await served.hub.access.revoke(ADMIN, "crane")
    assert (await away(actuator.step)).safe
    with pytest.raises(LinkError, match="no longer valid"):
        await away(lambda: controller.step([1.0, 0, 1, 0]))
    device_link.close()
    other.close()


def read_reason(connection: socket.socket, kind: Any = Associated) -> str:
    """Read the reason why the hub ended `connection`."""
    reader, messages = DelimitedReader(1 << 20), []
    while data := connection.recv(65536):
        messages += reader.receive(data)
    return str(kind.FromString(messages[-1]).released.reason) if messages else ""


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 200, ""),
        (b"\xff" * 64, "do not start with the length of a message"),
        (delimited(b"\xff" * 40), "not of the expected type"),
        (delimited(b"x" * 9000), "a message of 9000 bytes is too long: at most 8192"),
        (delimited(Associate(version=7, token=TOKEN, call=CALL).SerializeToString()), "version 7 is not supported"),
        (delimited(b""), "version 0 is not supported"),
    ],
)
async def test_an_invalid_first_message_ends_with_a_reason(served: Served, data: bytes, sentence: str) -> None:
    def attempt() -> str:
        with served.dial() as connection:
            connection.sendall(data)
            return read_reason(connection)

    assert sentence in await away(attempt)
    await away(lambda: served.link().close())


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (delimited(b"\xff" * 40), "not of the expected type"),
        (b"\xff\xff\x7f" + b"x" * 100, "is too long"),
        (delimited(b""), "the first message must be a handshake"),
        (delimited(ControlRequest(state=State(tick=1)).SerializeToString()) * 500, "must be a handshake"),
    ],
)
async def test_an_invalid_later_message_ends_with_a_reason(served: Served, data: bytes, sentence: str) -> None:
    def attempt() -> str:
        with served.dial() as connection:
            associate = Associate(version=1, token=TOKEN, call=CALL).SerializeToString()
            connection.sendall(delimited(associate) + data)
            return read_reason(connection, ControlResponse)

    assert sentence in await away(attempt)


async def test_a_silent_client_is_released_within_seconds(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(associations, "UNIDENTIFIED_SECONDS", 0.3)

    def attempt() -> str:
        with served.dial() as connection:
            connection.sendall(b"\x50")  # the length of a message that never follows
            return read_reason(connection)

    assert await away(attempt) == "the client did not identify itself within 0.3 s"


async def test_many_silent_clients_make_room_for_one_that_identifies_itself(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(associations, "MAX_UNIDENTIFIED", 3)

    def attempt() -> None:
        unidentified = [served.dial() for _ in range(8)]
        served.link().close()
        for connection in unidentified:
            connection.close()

    await away(attempt)
    assert served.associations.refused == 0


async def test_an_association_past_the_limit_is_refused_with_a_reason(served: Served) -> None:
    def attempt() -> str:
        links = [served.link(unix=True) for _ in range(16)]
        try:
            with served.dial() as connection:
                return read_reason(connection)
        finally:
            for link in links:
                link.send(ControlRequest())
                with pytest.raises(LinkError, match="the first message must be a handshake"):
                    link.receive(ControlResponse)
                link.close()

    assert await away(attempt) == "there are 16 associations, and no more are accepted: try again later"
    assert served.associations.refused == 1


async def test_one_address_gets_half_of_the_associations(served: Served) -> None:
    def attempt() -> str:
        links = [served.link() for _ in range(8)]
        with served.dial() as connection:
            reason = read_reason(connection)
        for link in links:
            link.close()
        served.link(unix=True).close()
        return reason

    assert await away(attempt) == "there are 8 associations from 127.0.0.1, and no more are accepted"


async def test_a_client_that_does_not_read_is_not_read_either(served: Served) -> None:
    def attempt() -> int:
        with served.dial() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = PanTiltHead(1_000_000)
            associate = Associate(version=1, token=TOKEN, call=CALL).SerializeToString()
            from embereye.v1.control_pb2 import Handshake

            shake = ControlRequest(handshake=Handshake(version=2, name="head", actuator=head.actuator))
            connection.sendall(delimited(associate) + delimited(shake.SerializeToString()))
            connection.settimeout(1.0)
            sent = 0
            try:
                for tick in range(1, 10**6):
                    state = State(tick=tick, measured=[0] * 4, sensors=[0] * 4)
                    sent += connection.send(delimited(ControlRequest(state=state).SerializeToString()))
            except TimeoutError:
                return sent
        raise AssertionError("the hub keeps reading")

    assert await away(attempt) < 64 << 20
    await away(lambda: served.link().close())


async def test_a_viewer_gets_every_echo_back_in_order(served: Served) -> None:
    token = await served.hub.access.create_token(ADMIN, "guest", Role.VIEWER)

    def attempt() -> list[EchoResponse]:
        with served.link(token, call=ECHO) as link:
            for number in range(500):
                link.send(EchoRequest(sequence=number, payload=bytes([number % 256]) * number))
            return [link.receive(EchoResponse) for _ in range(500)]

    for number, response in enumerate(await away(attempt)):
        assert (response.sequence, response.payload) == (number, bytes([number % 256]) * number)


async def test_an_echo_that_is_too_long_ends_the_association(served: Served) -> None:
    def attempt() -> None:
        with served.link(call=ECHO) as link:
            link.send(EchoRequest(payload=bytes(40_000)))
            link.receive(EchoResponse)

    with pytest.raises(LinkError, match=r"a message of 400.. bytes is too long: at most 33792"):
        await away(attempt)


async def echo_slowly(requests: AsyncIterator[EchoRequest]) -> AsyncIterator[EchoResponse]:
    async for request in requests:
        if not request.sequence % 16:
            await asyncio.sleep(0)
        yield EchoResponse(sequence=request.sequence, payload=request.payload)


async def test_many_requests_on_many_streams_are_answered_once_and_in_order(
    served: Served, debugged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, requests = 16, (10_000 if debugged else 50_000) // 16
    monkeypatch.setattr(associated_module, "AHEAD", 2_000)  # bytes, so few that reading is paused often
    served.associations.calls["x/Echo"] = associated(
        echo_slowly, EchoRequest.FromString, EchoResponse, Role.VIEWER, 1 << 16
    )

    def converse(number: int) -> list[int]:
        dice, sent, received = random.Random(number), 0, list[int]()
        with served.link(unix=True, call="x/Echo", timeout=60) as link:
            while len(received) < requests:
                for _ in range(min(dice.randrange(1, 200), requests - sent)):
                    sent += 1
                    link.send(EchoRequest(sequence=sent, payload=bytes(dice.randrange(100))))
                for _ in range(sent - len(received) if sent == requests else dice.randrange(sent - len(received) + 1)):
                    received.append(link.receive(EchoResponse).sequence)
        return received

    with ThreadPoolExecutor(clients) as threads:
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(threads, converse, number) for number in range(clients)]
        for received in await asyncio.wait_for(asyncio.gather(*running), 120):
            assert received == list(range(1, requests + 1))


async def test_all_waiting_clients_learn_that_the_hub_stops(served: Served, debugged: bool) -> None:
    links = [await away(lambda: served.link(unix=True, call=ECHO, timeout=20)) for _ in range(8)]

    def wait(link: Link) -> str:
        with link, pytest.raises(LinkError) as caught:
            link.receive(EchoResponse)
        return str(caught.value)

    with ThreadPoolExecutor(8) as threads:
        loop = asyncio.get_running_loop()
        waiting = [loop.run_in_executor(threads, wait, link) for link in links]
        await asyncio.sleep(0.05)
        await served.associations.close("the hub stops: dial again")
        ended = await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert ended == ["the hub stops: dial again"] * 8
