import asyncio
import base64
import contextlib

import pytest
from aiohttp import web
from harness.eventually import eventually

from embereye.camera.sources.credentials import VARIABLE, Mounted
from embereye.camera.sources.declared import RefusedCredentialsError
from embereye.camera.sources.logins import Login, Logins
from embereye.camera.sources.source import keep_playing
from embereye.process.http.server import bound_port, serve_http
from embereye.process.timing.backoff import Backoff

from ..conftest import assignment, device, noisy_jpeg, status_of

MINUTES = "the camera refused the user name or password"


class Recorder:
    """A recorder whose channels are MJPEG streams behind one password; `/plain` answers 404."""

    def __init__(self, password):
        self.password = password
        self.port = 0
        self.refused = 0
        self.missing = 0

    def application(self):
        app = web.Application()
        app.router.add_get("/{channel}", self.answer)
        return app

    async def answer(self, request):
        if request.match_info["channel"] == "plain":
            self.missing += 1
            return web.Response(status=404)
        allowed = "Basic " + base64.b64encode(f"me:{self.password}".encode()).decode()
        if (said := request.headers.get("Authorization")) != allowed:
            self.refused += said is not None
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="c"'})
        response = web.StreamResponse(headers={"Content-Type": "multipart/x-mixed-replace; boundary=x"})
        await response.prepare(request)
        number = 0
        with contextlib.suppress(ConnectionError):
            while said == "Basic " + base64.b64encode(f"me:{self.password}".encode()).decode():
                number += 1
                await response.write(b"--x\r\n\r\n" + noisy_jpeg(number) + b"\r\n")
                await asyncio.sleep(0.02)
        return response


@pytest.fixture
async def recorder():
    served = Recorder("right")
    runner = await serve_http(served.application(), "127.0.0.1", 0)
    served.port = bound_port(runner)
    yield served
    served.password = ""
    await runner.cleanup()


@pytest.fixture
def secret(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "username").write_text("me")

    def write(password):
        (tmp_path / "gate" / "password").write_text(password)

    write("wrong")
    return write


def channels(recorder, count):
    address = f"http://127.0.0.1:{recorder.port}"
    plain = device("plain", f"{address}/plain")
    return [plain, *(device(f"c{n}", f"{address}/{n}", credentials="gate") for n in range(count))]


async def test_all_channels_of_a_recorder_try_a_wrong_password_once(running, recorder, secret):
    running.shard.apply(assignment(1, *channels(recorder, 6)))
    await eventually(lambda: MINUTES in status_of(running.shard, "c3").state)
    seen = recorder.missing
    await eventually(lambda: recorder.missing >= seen + 3)  # others are dialled again and again
    assert recorder.refused == 1
    assert "next try in 1 min" in status_of(running.shard, "c0").state
    assert MINUTES in status_of(running.shard, "c0").reason
    secret("right")
    await eventually(lambda: all(status_of(running.shard, f"c{n}").covered for n in range(6)))
    assert recorder.refused == 1


async def test_a_password_that_the_camera_no_longer_accepts_is_tried_again_once(running, recorder, secret):
    secret("right")
    running.shard.apply(assignment(1, *channels(recorder, 4)))
    await eventually(lambda: all(status_of(running.shard, f"c{n}").covered for n in range(4)))
    recorder.password = "changed"
    await eventually(lambda: all("next try in" in status_of(running.shard, f"c{n}").state for n in range(4)))
    seen = recorder.missing
    await eventually(lambda: recorder.missing >= seen + 3)
    assert recorder.refused == 1


class Scripted:
    """A source whose log-in is refused `refusals` times before it sends."""

    def __init__(self, refusals):
        self.refusals = refusals
        self.played = 0

    async def play(self, offer, set_state):
        self.played += 1
        if self.played <= self.refusals:
            raise RefusedCredentialsError("401")
        offer(b"picture")
        await asyncio.sleep(3600)


async def test_refusals_wait_longer_each_time_until_a_log_in_is_accepted():
    logins, states = Logins((0.01, 0.02, 0.05)), []
    login, source = Login(logins, "camera", lambda: ("me", "x")), Scripted(5)
    player = asyncio.ensure_future(keep_playing("c", source, lambda *_: None, states.append, login=login))
    await eventually(lambda: source.played == 6)
    account = logins.accounts["camera", "me", "x"]
    await eventually(lambda: not account.refusals)
    player.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await player
    assert not logins.accounts
    assert f"failed: {MINUTES} (401); next try in 1 s" in states


def test_pauses_grow_to_ten_minutes_and_are_spread():
    pauses = [Logins().pause(refusals) for refusals in (1, 2, 3, 4, 50)]
    for pause, least in zip(pauses, (60, 120, 300, 600, 600), strict=True):
        assert least <= pause <= 1.2 * least


async def test_without_a_user_a_refusal_is_a_failure_as_any_other():
    source, states = Scripted(3), []
    player = asyncio.ensure_future(keep_playing("c", source, lambda *_: None, states.append, Backoff(0.001, 0.002)))
    await eventually(lambda: source.played == 4)
    player.cancel()
    assert "failed: 401" in states


async def test_a_stream_without_an_answer_delays_others_only_for_the_trial():
    logins = Logins(trial=0.05)
    first, second = (Login(logins, "camera", lambda: ("me", "x")) for _ in range(2))
    await first.wait(lambda _: None)
    await second.wait(lambda _: None)
    assert logins.accounts["camera", "me", "x"].trying is second


async def test_streams_wait_for_the_outcome_of_the_first_log_in():
    logins = Logins(trial=3600.0)
    first, *others = (Login(logins, "camera", lambda: ("me", "x")) for _ in range(4))
    await first.wait(lambda _: None)
    waiting = [asyncio.ensure_future(other.wait(lambda _: None)) for other in others]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    first.accept()
    await asyncio.gather(*waiting)


async def test_the_next_password_of_a_secret_is_tried_without_a_wait(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "gate").mkdir()
    for name, text in (("username", "me"), ("password", "old"), ("password-next", "new")):
        (tmp_path / "gate" / name).write_text(text)
    credentials, waits = Mounted("gate", "camera-of-this-test"), []
    login = Login(Logins(), "camera-of-this-test", credentials)
    await login.wait(waits.append)
    assert credentials() == ("me", "old")
    assert login.refuse() >= 60
    await login.wait(waits.append)
    assert (credentials(), waits) == (("me", "new"), [])
    login.refuse()
    waiting = asyncio.ensure_future(login.wait(waits.append))
    await eventually(lambda: waits)  # both were refused
    waiting.cancel()
