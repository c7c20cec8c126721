import asyncio
import contextlib
import time
from typing import Any

import grpc
import pytest
from harness.eventually import eventually

from embereye.camera.device.picture_analyst import AnalysedFrame
from embereye.camera.scheduling.mailbox import Tally
from embereye.camera.scheduling.turn import Turn
from embereye.camera.sources.push import service
from embereye.camera.sources.push.service import MAX_UNKNOWN, SILENT_NS, PushService, PushVerdict, _Stream
from embereye.detect.vision.observation import Finding, Observation
from embereye.levels import Kind, Level
from embereye.process.grpc_server import GrpcServer, channel
from embereye.process.http.bearer import bearer
from embereye.sim.cameras.thermal_camera import HEIGHT, WIDTH, ThermalRoom
from embereye.units import SECOND
from embereye.v1.frames_pb2 import PushRequest, RawWords
from embereye.v1.frames_pb2_grpc import FramesStub
from embereye.v1.shard_pb2 import AccessRules, Peer

from ..conftest import assignment, device, noisy_jpeg, status_of


class Sender:
    """One push stream and its responses."""

    def __init__(self, link, token=""):
        self.call = FramesStub(link).Push(metadata=bearer(token))
        self.acks, self.rejections, self.drains = {}, [], []
        self.sequence = 0
        self.reader = asyncio.ensure_future(self._read())

    async def _read(self):
        async for response in self.call:
            if response.HasField("ack"):
                self.acks[response.ack.camera] = response.ack
            elif response.HasField("drain"):
                self.drains.append(response.drain)
            else:
                self.rejections.append(response.rejected)

    async def send(self, camera, image=None, count=1):
        for _ in range(count):
            self.sequence += 1
            image_bytes = noisy_jpeg(self.sequence) if image is None else image
            await self.call.write(PushRequest(camera=camera, sequence=self.sequence, image=image_bytes))

    def balanced(self, camera, count):
        ack = self.acks.get(camera)
        return ack and ack.analysed + ack.shed == count


@pytest.fixture
async def sender(running):
    server = GrpcServer(running.shard.services())
    port = server.listen("127.0.0.1:0")
    await server.start()
    link = channel(f"127.0.0.1:{port}")
    sender = Sender(link)
    yield sender
    sender.reader.cancel()
    sender.call.cancel()
    await link.close(None)
    await server.stop(0.1)


async def test_everything_pushed_is_acknowledged_as_analysed_or_shed(running, sender):
    running.shard.apply(assignment(1, device("c1"), device("c2")))
    await sender.send("c1", count=20)
    await sender.send("c2", count=5)
    await eventually(lambda: sender.balanced("c1", 20) and sender.balanced("c2", 5))
    assert sender.acks["c1"].sequence == 20
    assert sender.acks["c2"].sequence == 25
    assert sender.acks["c1"].analysed >= 1


async def test_a_sender_that_ends_its_stream_gets_its_last_acknowledgement(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    await sender.send("c1", count=3)
    await sender.call.done_writing()
    await asyncio.wait_for(sender.reader, 10)
    assert sender.acks["c1"].sequence == 3
    assert sender.balanced("c1", 3)


async def test_an_unknown_camera_is_rejected_by_name_and_the_stream_continues(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    await sender.send("nobody", count=3)
    await sender.send("c1")
    await eventually(lambda: sender.rejections and sender.balanced("c1", 1))
    assert list(sender.rejections[0].devices) == ["nobody"]
    assert "nobody" in sender.rejections[0].reason


async def test_an_invalid_image_is_rejected_and_acknowledged(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    await sender.send("c1", b"junk")
    await eventually(lambda: sender.rejections and sender.balanced("c1", 1))
    assert "not a JPEG" in sender.rejections[0].reason


async def test_a_camera_that_moves_to_another_shard_is_acknowledged_and_redirected(running, sender):
    running.shard.apply(assignment(1, device("c1"), device("c2")))
    await sender.send("c1", count=2)
    await sender.send("c2", count=2)
    await eventually(lambda: sender.balanced("c1", 2) and sender.balanced("c2", 2))
    running.shard.apply(assignment(2, device("c1"), peers=[Peer(shard="b", grpc="10.0.0.2:1")], elsewhere={"c2": "b"}))
    await eventually(lambda: sender.drains)
    assert (sender.drains[0].target, list(sender.drains[0].devices)) == ("10.0.0.2:1", ["c2"])
    await sender.send("c2")
    await sender.send("c1")
    await eventually(lambda: sender.balanced("c1", 3) and len(sender.drains) > 1)
    assert list(sender.drains[1].devices) == ["c2"]


async def test_a_draining_shard_redirects_every_sender(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    await sender.send("c1")
    await eventually(lambda: sender.balanced("c1", 1))
    await running.shard.drain()
    await eventually(lambda: sender.drains)
    assert not sender.drains[0].devices


async def test_a_sender_of_endless_unknown_names_is_cut_off(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for number in range(MAX_UNKNOWN + 50):
            await sender.send(f"x{number}", b"")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(sender.reader, 10)
    # grpc reports INTERNAL to a sender whose stream is ended in the middle of a write.
    assert caught.value.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL}


async def test_an_invalid_camera_name_is_not_remembered(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    await sender.send("c1")
    await eventually(lambda: running.shard._push.streams == 1)
    (stream,) = running.shard._push._streams
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for number in range(20):
            await sender.send(f"{number}{'x' * 1_000_000}", b"")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(sender.reader, 60)
    assert caught.value.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL}
    assert not stream.refusals


async def test_a_sender_that_reads_no_responses_is_not_read_further(monkeypatch):
    for name, value in (("MAX_RESPONSES", 10), ("STRANGER_PAUSE", 0.0), ("RECHECK_PERIOD", 0.001)):
        monkeypatch.setattr(service, name, value)

    class Requests:
        count = 0

        async def read(self):
            self.count += 1
            return PushRequest(camera=f"x{self.count}") if self.count <= 30 else grpc.aio.EOF

    push = PushService(lambda *_: PushVerdict(accepted=False, reason="nobody declared it"))
    stream, requests = _Stream(), Requests()
    context: Any = requests
    reader = asyncio.ensure_future(push._read_frames(stream, context))
    await eventually(lambda: requests.count > 10)
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert requests.count == len(stream.outgoing) == 11
    while not reader.done():
        stream.responses()
        await asyncio.sleep(0.001)
    assert await reader


async def test_a_sender_that_disappears_leaves_no_stream_behind(running, sender):
    running.shard.apply(assignment(1, device("c1")))
    await sender.send("c1")
    await eventually(lambda: running.shard._push.streams == 1)
    sender.call.cancel()
    await eventually(lambda: running.shard._push.streams == 0)


async def test_raw_temperature_words_are_accepted_unless_too_few(running, sender):
    running.shard.apply(assignment(1, device("hot", detectors=["heat"])))
    room = ThermalRoom(1, [])
    size = RawWords(width=WIDTH, height=HEIGHT)
    for number in range(3):
        request = PushRequest(camera="hot", sequence=number + 1, image=room.frame(1 + number), raw=size)
        await sender.call.write(request)
        await asyncio.sleep(0.05)
    await eventually(lambda: status_of(running.shard, "hot").ledger.analysed >= 1)
    assert status_of(running.shard, "hot").covered
    await sender.call.write(PushRequest(camera="hot", sequence=4, image=b"few", raw=size))
    await eventually(lambda: sender.rejections)
    assert "160x120 words of 16 bits need" in sender.rejections[0].reason


def slow_down(shard, camera, rate=2.0):
    """Make the shard believe permanently that it does not keep up with `camera`."""
    controller = shard._cameras[camera].arrivals.mailbox.rate_controller
    controller.rate, controller.grant = rate, lambda _: None
    return controller


async def test_a_paused_sender_is_read_only_for_fresh_frames_to_analyse(running, sender):
    running.shard.apply(assignment(1, device("c1", fps_target=100, fps_min=1)))
    slow_down(running.shard, "c1")
    camera, captures, seen = running.shard._cameras["c1"], [], []
    order, latest = camera.decode_order, 0

    def note_capture(frame):
        seen.append((frame.time_ns, latest))
        return order(frame)

    camera.decode_order = note_capture
    slot, image = asyncio.Queue(1), noisy_jpeg(1, (480, 640))

    async def send():
        while True:
            number, taken_ns = await slot.get()
            request = PushRequest(camera="c1", sequence=number, time_ns=taken_ns, image=image)
            await sender.call.write(request)

    sending = asyncio.ensure_future(send())
    while len(seen) < 6:
        latest = time.time_ns()
        if slot.full():
            slot.get_nowait()
        captures.append(latest)
        slot.put_nowait((number := len(captures), latest))
        await asyncio.sleep(0.01)
    sending.cancel()
    ledger = camera.arrivals.mailbox.ledger
    assert ledger.offered < number / 2
    assert camera.arrivals.backpressure.unread > 0
    behind = sorted(sum(taken_ns < captured <= newest for captured in captures) for taken_ns, newest in seen)
    assert behind[len(behind) // 2] < number / len(seen) / 2
    assert ledger.offered == ledger.analysed + ledger.shed.total() + ledger.rejected.total() + ledger.waiting


async def test_a_sender_that_queues_frames_is_read_until_they_are_fresh(running, sender):
    running.shard.apply(assignment(1, device("c1", fps_target=100, fps_min=1)))
    slow_down(running.shard, "c1", 1.5)
    camera, queue, image = running.shard._cameras["c1"], asyncio.Queue(), noisy_jpeg(1, (480, 640))

    async def send():
        while True:
            await sender.call.write(PushRequest(camera="c1", sequence=1, time_ns=await queue.get(), image=image))

    sending, captured, late = asyncio.ensure_future(send()), 0, []
    while camera.arrivals.mailbox.ledger.analysed < 4:
        captured += 1
        queue.put_nowait(time.time_ns())
        await asyncio.sleep(0.03)  # a rate that a slow machine can read
        late.append(queue.qsize())
    sending.cancel()
    # Otherwise more than half of them wait all the time.
    assert min(late[-captured // 2 :]) < captured / 4
    assert not camera.status.blindness(time.time_ns())


async def test_a_slowed_camera_does_not_slow_others_on_its_stream(running, sender):
    running.shard.apply(assignment(1, device("slow", fps_target=100, fps_min=1), device("c2")))
    slow_down(running.shard, "slow", 1.0)
    for _ in range(30):
        await sender.send("slow", noisy_jpeg())
        await sender.send("c2", noisy_jpeg())
    await eventually(lambda: status_of(running.shard, "c2").ledger.offered == 30)
    assert status_of(running.shard, "slow").ledger.analysed <= 3


def test_a_stream_pauses_while_none_of_its_active_cameras_wants_a_frame():
    now = 1_000 * SECOND
    stream = _Stream()
    assert stream.pause(now) <= 0
    stream.tallies = {
        "a": Tally(heard_ns=now, wanted_ns=now + SECOND),
        "b": Tally(heard_ns=now - SECOND, wanted_ns=now + SECOND // 2),
        "gone": Tally(heard_ns=now - SILENT_NS),
    }
    assert stream.pause(now) == 0.5
    stream.tallies["c"] = Tally(heard_ns=now)
    assert stream.pause(now) <= 0


async def test_the_bytes_in_flight_of_a_paused_sender_are_bounded(running, sender):
    running.shard.apply(assignment(1, device("c1", fps_target=100, fps_min=1)))
    slow_down(running.shard, "c1", 1.0)
    await sender.send("c1")
    await eventually(lambda: sender.balanced("c1", 1))
    written, image, began = 0, noisy_jpeg(1, (480, 640)), time.monotonic()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            while True:
                await sender.send("c1", image)
                written += 1
    # The shard reads one frame a second. On a busy machine the time-out comes late.
    assert written <= 3 + 2 * (time.monotonic() - began)


@pytest.mark.parametrize("image", [bytes(100_000), noisy_jpeg(1, (480, 640))], ids=["garbage", "pictures"])
async def test_a_flooding_sender_is_read_hardly_faster_than_a_camera(running, sender, image):
    running.shard.apply(assignment(1, device("bad", fps_target=15, fps_min=1)))

    async def flood():
        while True:
            await sender.send("bad", image)

    began, flooding = time.monotonic(), asyncio.ensure_future(flood())
    await eventually(lambda: status_of(running.shard, "bad").ledger.offered >= 20)
    flooding.cancel()
    assert status_of(running.shard, "bad").ledger.offered <= 10 + 50 * (time.monotonic() - began)


async def test_a_camera_that_suspects_fire_is_read_without_a_pause(running):
    running.shard.apply(assignment(1, device("c1", fps_target=100, fps_min=1)))
    camera, tally = running.shard._cameras["c1"], Tally()
    controller = slow_down(running.shard, "c1", 1.0)
    camera._submit = lambda _: None
    camera.push_frame(noisy_jpeg(), time.time_ns(), tally)
    controller._credit = 0.0
    camera.push_frame(noisy_jpeg(), time.time_ns(), tally)
    assert tally.wanted_ns > tally.heard_ns
    burning = Finding(Kind.FLAME, Level.CLEAR, lasted_ns=1)
    analysis = AnalysedFrame(Observation(time.time_ns(), (burning,)), b"", 0.001)
    camera.finish_turn(Turn(camera.next_frame(), 0.0, 0.0, 0.0, analysis))
    assert tally.wanted_ns == 0
    camera.push_frame(noisy_jpeg(), time.time_ns(), tally)
    assert tally.wanted_ns == 0


async def test_a_sender_presents_a_token_if_its_fleet_requires_one(running, tmp_path, monkeypatch):
    (tmp_path / "cameras").mkdir()
    (tmp_path / "cameras" / "token").write_text("a-token-of-the-whole-fleet\n")
    (tmp_path / "cameras" / "devices").write_text("c1 a-token-of-one-camera\n")
    monkeypatch.setattr(running.shard._push.access, "_folder", str(tmp_path))
    wanted = assignment(1, device("c1", "push"), device("c2", "push"))
    wanted.camera.access.CopyFrom(AccessRules(tokens="cameras"))
    running.shard.apply(wanted)
    server = GrpcServer(running.shard.services())
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with channel(f"127.0.0.1:{port}") as link:
        whole, single, stranger = (
            Sender(link, token)
            for token in ("a-token-of-the-whole-fleet", "a-token-of-one-camera", "guessed-by-somebody")
        )
        await whole.send("c2")
        await single.send("c1")
        await single.send("c2")
        await eventually(lambda: whole.balanced("c2", 1) and single.balanced("c1", 1))
        await eventually(lambda: [(list(rejection.devices), rejection.reason) for rejection in single.rejections]
                         == [(["c2"], 'its credentials allow only "c1"')])  # fmt: skip
        assert await stranger.call.code() is grpc.StatusCode.UNAUTHENTICATED
        for sender in (whole, single, stranger):
            sender.call.cancel()
            await asyncio.gather(sender.reader, return_exceptions=True)
    await server.stop(0)


async def test_an_open_stream_is_ended_with_a_reason_when_access_changes(running):
    wanted = assignment(1, device("c1", "push"))
    running.shard.apply(wanted)
    server = GrpcServer(running.shard.services())
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with channel(f"127.0.0.1:{port}") as link:
        sender = Sender(link)
        await sender.send("c1")
        await eventually(lambda: sender.balanced("c1", 1))
        wanted = assignment(2, device("c1", "push"))
        wanted.camera.access.CopyFrom(AccessRules(tokens="cameras"))
        running.shard.apply(wanted)
        assert await asyncio.wait_for(sender.call.code(), 20) is grpc.StatusCode.UNAVAILABLE
        assert "changed" in await sender.call.details()
        await asyncio.gather(sender.reader, return_exceptions=True)
    await server.stop(0)


async def test_a_stream_ended_during_a_response_gets_the_reason(running, sender, monkeypatch):
    restricted = assignment(2, device("c1", "push"))
    restricted.camera.access.CopyFrom(AccessRules(tokens="cameras"))
    write, loop = service._write, asyncio.get_running_loop()

    async def restrict_meanwhile(context, response):
        loop.call_soon(running.shard.apply, restricted)  # once the write has begun
        await write(context, response)

    monkeypatch.setattr(service, "_write", restrict_meanwhile)
    running.shard.apply(assignment(1, device("c1", "push")))
    await sender.send("c1")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(sender.reader, 20)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "changed" in str(caught.value.details())
