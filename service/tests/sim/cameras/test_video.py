import asyncio
import contextlib
import threading

import pytest

from embereye.camera.decode.image import DecodeOrder
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.cameras.video import CodedFilms, encode_loop
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.sim.scenes.fire import Fire
from embereye.wire.rtp.packet import full_intra_request, is_key_frame_request, key_frame_request, receiver_report


@contextlib.asynccontextmanager
async def serving(cameras, encoding):
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(cameras, "127.0.0.1", 0, stop, port.set_result, encoding))
    yield await port
    stop.set()
    await server


def opened(url):
    return RtspSource(parse_source(url), lambda: ("", ""), DialLimiter(1), SocketPoller())


async def rooms(*names, fires=()):
    return await prepare([CameraSpec(name) for name in names], fps=15, size=(160, 120), fires=fires)


@pytest.mark.parametrize("query", ["", "?transport=udp"])
@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_a_simulated_camera_is_received_and_decoded(encoding, query):
    units, done = [], asyncio.Event()

    def offer(unit, *_):
        units.append(unit)
        if len(units) == 20:
            done.set()

    async with serving(await rooms("a"), encoding) as port:
        source = RtspSource(
            parse_source(f"rtsp://127.0.0.1:{port}/a{query}"), lambda: ("", ""), DialLimiter(1), SocketPoller()
        )
        player = asyncio.ensure_future(source.play(offer, lambda _: None))
        await asyncio.wait_for(done.wait(), 60)
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    decoder, order = VideoDecoder(encoding), DecodeOrder(1)
    assert units[0].key
    assert units[0].encoding == encoding
    assert not any(unit.damaged for unit in units)
    images = [decoder.decode(order, [(unit.data, number)]).image for number, unit in enumerate(units)]
    assert all(image.shape == (120, 160, 3) for image in images)


async def test_the_url_may_request_another_codec():
    units, done = [], asyncio.Event()
    async with serving(await rooms("a"), "JPEG") as port:
        source = RtspSource(
            parse_source(f"rtsp://127.0.0.1:{port}/a?codec=h265"), lambda: ("", ""), DialLimiter(1), SocketPoller()
        )

        def offer(unit, *_):
            units.append(unit)
            done.set()

        player = asyncio.ensure_future(source.play(offer, lambda _: None))
        await asyncio.wait_for(done.wait(), 60)
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    assert units[0].encoding == "H265"


async def test_a_loop_is_coded_once_for_all_cameras(monkeypatch):
    made = []

    def encode(*arguments):
        made.append(arguments)
        return encode_loop(*arguments)

    monkeypatch.setattr("embereye.sim.cameras.video.encode_loop", encode)
    films = CodedFilms(await rooms("a", "b", "c", "d", "e"))

    async def watch(camera):
        wanted = asyncio.Event()
        async with contextlib.aclosing(films.pictures(camera, "H264", wanted)) as pictures:
            async for _ in pictures:
                return

    await asyncio.gather(*map(watch, ["a", "e", "a", "e"]))
    assert len(made) == 1


async def test_a_jump_of_the_film_or_a_request_gives_a_key_frame():
    films = CodedFilms(await rooms("a", fires=[Fire(at=1.0, duration=1.0, device="a")]))
    wanted, keys = asyncio.Event(), []
    async with contextlib.aclosing(films.pictures("a", "H264", wanted)) as pictures:
        async for picture in pictures:
            keys.append(picture.key)
            if len(keys) == 5:
                wanted.set()
            if len(keys) == 25:
                break
    assert keys[0]
    assert keys[5]
    assert sum(keys) >= 3


async def test_a_camera_continues_while_its_fire_is_being_coded(monkeypatch):
    coded = threading.Event()
    calls = []

    def slowly(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            coded.wait(30)
        return encode_loop(*arguments)

    monkeypatch.setattr("embereye.sim.cameras.video.encode_loop", slowly)
    films = CodedFilms(await rooms("a", fires=[Fire(at=0.5, duration=60.0, device="a")]))
    seen = []
    async with contextlib.aclosing(films.pictures("a", "H264", asyncio.Event())) as pictures:
        async with asyncio.timeout(30):
            async for picture in pictures:
                seen.append(picture)
                if len(calls) == 2 and not coded.is_set() and len(seen) > 20:
                    waiting = len(seen)
                    coded.set()
                if coded.is_set() and len(seen) > waiting + 1 and picture.key:
                    break
    assert seen[-1].key


def test_requests_for_a_key_frame_are_found_in_compound_packets():
    report = receiver_report(1, b"", "x")
    assert is_key_frame_request(report + key_frame_request(1, 2))
    assert is_key_frame_request(report + full_intra_request(1, 2, 3))
    assert not is_key_frame_request(report)
    assert not is_key_frame_request(b"\x81")
