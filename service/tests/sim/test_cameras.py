import argparse
import asyncio
import contextlib

import aiohttp
import cv2
import numpy as np
import pytest

from embereye.process.addresses import address_option
from embereye.process.lifecycle import UserError
from embereye.sim.cameras.mjpeg import serve_mjpeg
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.sim.scenes.fire import Fire
from embereye.wire.http.multipart import MultipartParser
from embereye.wire.jpeg.header import read_header
from embereye_cli.main import main
from embereye_cli.simulate.cameras import add_arguments, parse_specs


def arguments(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_cameras_are_named_by_count_or_individually():
    assert [spec.id for spec in parse_specs(arguments("--count", "2"))] == ["camera-1", "camera-2"]
    assert parse_specs(arguments("--cameras", "a=hall,b")) == [CameraSpec("a", "hall"), CameraSpec("b", "")]


def test_a_clip_is_a_separate_camera_or_one_of_those_named(tmp_path):
    clip = tmp_path / "a=b.mp4"
    clip.write_bytes(b"x")
    assert parse_specs(arguments("--cameras", "c1=hall", "--clip", f"{clip}=c1")) == [CameraSpec("c1", "hall", clip)]
    assert parse_specs(arguments("--clip", f"{clip}=c9")) == [CameraSpec("c9", "", clip)]


@pytest.mark.parametrize("names", [("c1", "c1"), ("c/1",)])
def test_a_clip_that_no_url_could_show_is_refused(names, tmp_path):
    clip = tmp_path / "a.mp4"
    clip.write_bytes(b"x")
    with pytest.raises(UserError, match=f"a.mp4={names[-1]}"):
        parse_specs(arguments(*(word for name in names for word in ("--clip", f"{clip}={name}"))))


def test_a_thermal_camera_is_separate_and_pushed():
    specs = parse_specs(arguments("--thermal", "t1=attic", "--thermal", "t2", "--push", "127.0.0.1:1"))
    assert specs == [CameraSpec("t1", "attic", thermal=True), CameraSpec("t2", thermal=True)]


@pytest.mark.parametrize(
    "words",
    [
        ("--thermal", "t1"),
        ("--thermal", "", "--push", "h:1"),
        ("--cameras", "t1", "--thermal", "t1", "--push", "h:1"),
        ("--cameras", "a,a"),
        ("--cameras", "a/b"),
        ("--clip", "none.mp4=c1"),
        ("--clip", "x"),
        ("--count", "-1"),
    ],
)
def test_invalid_arguments_are_refused(words):
    with pytest.raises(UserError):
        parse_specs(arguments(*words))


@pytest.mark.parametrize("size", ["64²x480", "640", "640x", "9x9"])
def test_an_invalid_size_is_refused(size, capsys):
    assert main(["simulate", "cameras", "--size", size]) == 2
    assert f'--size "{size}" is not WIDTHxHEIGHT' in capsys.readouterr().err


async def test_the_server_lists_its_cameras_and_streams_each_as_mjpeg():
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    cameras = await prepare([CameraSpec("c1", "hall")], fps=20, size=(160, 120))
    server = asyncio.ensure_future(serve_mjpeg(cameras, "127.0.0.1", 0, stop, port.set_result))
    base = f"http://127.0.0.1:{await port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(base) as response:
            assert "c1" in await response.text()
        async with session.get(f"{base}/c2.mjpg") as response:
            assert response.status == 404
        async with session.get(f"{base}/c1.mjpg") as response:
            parser, pictures = MultipartParser(response.headers["Content-Type"]), []
            while len(pictures) < 3:
                pictures += parser.feed(await response.content.readany())
    assert all((read_header(p).width, read_header(p).complete) == (160, True) for p in pictures)
    assert len(set(pictures)) == len(pictures)
    stop.set()
    await server


async def test_a_fire_is_shown_only_while_and_where_it_burns():
    fires = [Fire(5, 10, device="a")]
    cameras = await prepare([CameraSpec("a"), CameraSpec("b")], fps=5, size=(160, 120), fires=fires)

    def redness(camera, seconds):
        jpeg = np.frombuffer(cameras.films[camera].frame(seconds), np.uint8)
        picture = cv2.imdecode(jpeg, cv2.IMREAD_COLOR).astype(int)
        return int(((picture[..., 2] > 240) & (picture[..., 0] < 120)).sum())

    assert [redness("a", seconds) > 10 for seconds in (1, 4.9, 12, 14.9, 15.1)] == [False, False, True, True, False]
    assert redness("b", 12) == 0


async def test_a_clip_is_repeated(tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (64, 48))
    for number in range(4):
        writer.write(np.full((48, 64, 3), 60 * number, np.uint8))
    writer.release()
    cameras = await prepare([CameraSpec("c", clip=path)])
    film = cameras.films["c"]
    assert film.rate == 10
    assert film.frame(0.05) == film.frame(0.45) != film.frame(0.15)
    path.write_bytes(b"none")
    with pytest.raises(UserError):
        await prepare([CameraSpec("c", clip=path)])


@pytest.mark.parametrize("text", ["nowhere", "host:", ":80", "host:port", "host:70000"])
def test_an_invalid_address_is_refused(text):
    with pytest.raises(UserError):
        address_option("--listen", text, any_port=True)


async def test_no_frame_is_shown_twice_although_sleeps_end_early(monkeypatch):
    cameras = await prepare([CameraSpec("a")], fps=50, size=(64, 64))
    sleep = asyncio.sleep

    async def early(seconds):
        await sleep(max(0.0, seconds - 0.002))

    monkeypatch.setattr("embereye.sim.scenes.films.asyncio.sleep", early)
    moments = []
    async with contextlib.aclosing(cameras.moments("a")) as shown:
        async for seconds in shown:
            moments.append(round(seconds * 50))
            if len(moments) == 20:
                break
    assert len(set(moments)) == 20
    assert moments == sorted(moments)


async def test_cameras_do_not_take_their_pictures_at_the_same_time():
    names = ["a", "b", "c", "d"]
    cameras = await prepare([CameraSpec(name) for name in names], fps=10, size=(64, 64))
    due = []
    for name in names:
        async with contextlib.aclosing(cameras.moments(name)) as shown:
            due.append(await anext(shown) * 10 % 1)
    assert due == pytest.approx([0, 0.25, 0.5, 0.75])
