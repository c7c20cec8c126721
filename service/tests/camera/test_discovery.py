"""Discovery with simulated cameras that receive the probe on this machine's loopback."""

import asyncio
import contextlib
import socket

import pytest

from embereye.camera import discovery
from embereye.camera.discovery import addresses, ask_all, search
from embereye.camera.sources.onvif.found import FoundCamera, located
from embereye.process.lifecycle import UserError
from embereye.sim.cameras.onvif import OnvifCameras, probe_matches, serve_onvif
from embereye.wire.onvif.discovery import GROUP_V4, PORT, Match
from embereye.wire.onvif.media import Profile
from embereye.wire.onvif.xml import parse

PROFILE = Profile("m", "main", "H264", 640, 480, 15, 0, "v")


@contextlib.asynccontextmanager
async def cameras(*names, **options):
    served = OnvifCameras({name: [(PROFILE, "rtsp://127.0.0.1/1")] for name in names}, **options)
    stop, bound = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_onvif(served, "127.0.0.1", 0, stop, bound.set_result))
    try:
        yield await bound
    finally:
        stop.set()
        await server


async def found_at(port):
    """Search and return this port's cameras; other programs of this machine may answer too."""
    lines = []
    cameras_found = await search(["127.0.0.1"], 0.8, lines.append)
    return [camera for camera in cameras_found if f":{port}/" in camera.source], lines


async def test_every_camera_that_answers_is_found_once_and_reported_at_once():
    async with cameras("gate", "yard") as port:
        cameras_found, lines = await found_at(port)
    assert sorted(camera.source for camera in cameras_found) == [
        f"onvif://127.0.0.1:{port}/{name}" for name in ("gate", "yard")
    ]
    assert {camera.name for camera in cameras_found} == {"gate", "yard"}
    assert f"onvif://127.0.0.1:{port}/gate answers: gate simulated" in lines


async def test_cameras_are_asked_with_credentials_and_a_refusal_is_reported():
    lines = []
    async with cameras("gate", user="me", password="secret") as port:
        camera = FoundCamera(f"onvif://127.0.0.1:{port}/gate")
        (known,) = await ask_all([camera], "me", "secret", lines.append)
        assert known.profiles == [PROFILE]
        assert (known.maker, known.serial, known.problem) == ("EmberEye simulated", "gate", "")
        (wrong,) = await ask_all([camera], "me", "wrong", lines.append)
        (none,) = await ask_all([camera], "", "", lines.append)
    assert wrong.refused
    assert none.refused
    assert "Check the credentials" in wrong.problem
    assert lines[0] == f"1/1 onvif://127.0.0.1:{port}/gate: 1 profile"
    assert "secret" not in " ".join(lines)


async def test_a_camera_that_never_answers_does_not_delay_the_others(monkeypatch):
    monkeypatch.setattr(discovery, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with cameras("gate") as port:
            places = [f"127.0.0.1:{silent.getsockname()[1]}", f"127.0.0.1:{port}/gate"]
            hung, known = await ask_all([FoundCamera(f"onvif://{place}") for place in places], "", "", lambda _: None)
    assert hung.problem == "no answer within 0.5 s"
    assert known.profiles


async def test_garbage_and_answers_to_other_probes_are_ignored():
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((GROUP_V4, PORT))
        stranger.setsockopt(
            socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP_V4) + socket.inet_aton("127.0.0.1")
        )

        def answer():
            data, sender = stranger.recvfrom(65_536)
            asked = parse(data).value("MessageID")
            for reply in (
                b"", b"\xff" * 1000, b"<a>" * 5000, b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
                probe_matches("x", "http://127.0.0.1:1/other", "urn:uuid:another-probe"),
                probe_matches("x", "file:///etc/passwd", asked),
                probe_matches("x", "http://192.0.2.1:777/away", asked),
            ):  # fmt: skip
                stranger.sendto(reply, sender)

        loop.add_reader(stranger, answer)
        cameras_found = await search(["127.0.0.1"], 0.5, lambda _: None)
        loop.remove_reader(stranger)
    sources = {camera.source for camera in cameras_found}
    assert not any("other" in source or "192.0.2.1" in source for source in sources)
    # the address that answered is used, even if the answer names another
    assert "onvif://127.0.0.1:777/away" in sources


@pytest.mark.parametrize(
    ("addresses", "source"),
    [
        (["http://10.0.0.7/onvif/device_service"], "onvif://10.0.0.7"),
        (["http://10.0.0.7:8080/onvif/device_service"], "onvif://10.0.0.7:8080"),
        (["http://169.254.1.2/onvif/device_service", "http://10.0.0.7:81/other"], "onvif://10.0.0.7:81/other"),
        (["http://camera.local:8000/onvif/device_service"], "onvif://10.0.0.7:8000"),
        (["https://10.0.0.7/onvif/device_service"], "onvif://10.0.0.7:443"),
        (["https://10.0.0.7:8443/x", "http://10.0.0.7/x"], "onvif://10.0.0.7/x"),
    ],
)
def test_the_address_that_answered_is_used(addresses, source):
    assert located(Match("urn:uuid:1", addresses), "10.0.0.7").source == source


def test_a_camera_without_a_usable_address_is_left_out():
    assert located(Match("urn:uuid:1", ["https://10.0.0.7:8443/x"]), "10.0.0.7") is None


def test_an_interface_is_named_or_addressed_and_a_wrong_one_is_reported():
    assert addresses(["lo"]) == addresses(["127.0.0.1"]) == {"lo": "127.0.0.1"}
    with pytest.raises(UserError, match=r'"nonsense": this machine has no such interface.*lo \(127\.0\.0\.1\)'):
        addresses(["nonsense"])
