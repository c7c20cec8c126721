"""`embereye init` writes fleets that `embereye up` accepts, keeps passwords apart, overwrites nothing, and checks."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest
import yaml
from harness.eventually import wait_for

from embereye.process.addresses import free_ports
from embereye_cli.main import main
from embereye_operator.up.folder import load_fleets
from embereye_operator.up.options import UpOptions, wanted_ports

INIT = [sys.executable, "-m", "embereye_cli", "init"]
CAMERA = "yard=rtsp://viewer:p%40ss@127.0.0.7/live"
SENSOR = ["--sensor", "kitchen=zigbee2mqtt/Kitchen smoke", "--broker", "mqtt://127.0.0.2"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path / ".embereye/credentials"))
    return tmp_path


def init(*words):
    """Write the files without the check, which would look for the devices."""
    return main(["init", "--skip-check", *words])


def test_options_become_fleets_that_up_accepts(here, capsys):
    words = ["--camera", CAMERA, "--camera", "127.0.0.8", *SENSOR, "--notify", "ntfys://fire-7c1e9f40b2"]
    assert init(*words) == 0
    printed = capsys.readouterr().out
    assert "embereye doctor fleet.yaml --notify notify.yaml" in printed
    assert "embereye up fleet.yaml --notify notify.yaml" in printed
    fleets = load_fleets([here / "fleet.yaml"])
    wanted_ports(UpOptions(manifests=[], data=here), fleets.values())  # refuses a port that both want
    devices: Any = [fleet.devices for fleet in fleets.values()]
    cameras, sensors = devices
    assert [(camera.id, camera.zone, camera.source) for camera in cameras] == [
        ("yard", "yard", "rtsp://127.0.0.7/live"), ("home", "home", "onvif://127.0.0.8"),
    ]  # fmt: skip
    assert [(sensor.zone, sensor.source, sensor.template) for sensor in sensors] == [
        ("kitchen", "mqtt:zigbee2mqtt/Kitchen smoke", "zigbee2mqtt")
    ]
    assert yaml.safe_load((here / "notify.yaml").read_text())["routes"][0]["url"] == "ntfys://fire-7c1e9f40b2"


def test_a_password_in_an_address_is_stored_apart_and_privately(here):
    assert init("--camera", CAMERA) == 0
    assert "p%40ss" not in (here / "fleet.yaml").read_text()
    password = here / ".embereye/credentials/cameras/password"
    assert password.read_text() == "p@ss"
    assert password.stat().st_mode & 0o077 == 0
    assert (here / ".embereye/credentials").stat().st_mode & 0o077 == 0


def test_different_logins_get_different_names(here):
    other = "rtsp://admin:other@127.0.0.9/live"
    assert init("--camera", CAMERA, "--camera", other, "--camera", "viewer=" + CAMERA.partition("=")[2]) == 0
    (fleet,) = load_fleets([here / "fleet.yaml"]).values()
    assert [camera.credentials_ref.name for camera in fleet.devices] == ["cameras", "cameras-2", "cameras"]


def test_existing_files_are_kept_unless_forced(here, capsys):
    (here / "fleet.yaml").write_text("mine")
    assert init("--camera", CAMERA) == 2
    assert "fleet.yaml: exists already" in capsys.readouterr().err
    assert (here / "fleet.yaml").read_text() == "mine"
    assert not (here / ".embereye").exists()
    assert init("--camera", CAMERA, "--force") == 0


def test_without_a_terminal_nothing_is_asked():
    done = subprocess.run(INIT, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"standard input is no terminal" in done.stderr


class Person:
    """Somebody at a terminal who answers `embereye init`."""

    def __init__(self, *words, command=INIT):
        self.leader, follower = pty.openpty()
        pipes: Any = {"stdin": follower, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen([*command, *words], **pipes, start_new_session=True)
        os.close(follower)
        self.text = b""

    def answer(self, question, text):
        """Wait for `question` and type `text`: a password's question discards what was typed before."""
        seen = len(self.text)
        while question.encode() not in self.text[seen:]:
            self.text += (read := os.read(self.process.stdout.fileno(), 1000))
            assert read, self.text
        os.write(self.leader, text.encode())

    def end(self):
        """Return the exit code and all that was printed."""
        self.text += self.process.communicate(timeout=60)[0]
        os.close(self.leader)
        return self.process.returncode, self.text.decode()


def test_five_questions_are_asked_at_a_terminal(here):
    person = Person("--no-up", "--skip-check")
    person.answer("1. ", "yard=127.0.0.7 hall=127.0.0.8\n")
    person.answer("2. ", "\n")
    person.answer("3. ", "home\n")
    person.answer("4. ", "\n")
    person.answer("5. ", "\n")
    person.answer("User of the cameras", "viewer\n")
    person.answer("Password: ", "s3cret\n")
    code, text = person.end()
    assert code == 0, text
    (fleet,) = load_fleets([here / "fleet.yaml"]).values()
    assert [(camera.zone, camera.credentials_ref.name) for camera in fleet.devices] == [
        ("yard", "cameras"), ("hall", "cameras")
    ]  # fmt: skip
    assert (here / ".embereye/credentials/cameras/password").read_text() == "s3cret"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_answers_lead_to_a_covered_camera_and_its_console():
    if os.geteuid() or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("a separate network, in which the usual ports are free, needs root, unshare, nsenter and ip")
    camera = f"{sys.executable} -m embereye_cli simulate cameras --listen 127.0.0.1:8093 --cameras yard=yard"
    shell = f'ip link set lo up; {camera} >/dev/null 2>&1 & exec "$@"'
    person = Person(command=["unshare", "--net", "sh", "-c", shell, "_", *INIT])

    def is_true_there(*words):
        inside = ["nsenter", "--target", str(person.process.pid), "--net", sys.executable, *words]
        return subprocess.run(inside, capture_output=True, check=False, timeout=60).returncode == 0

    try:
        port = "import socket; socket.create_connection(('127.0.0.1', 8093))"
        wait_for(lambda: is_true_there("-c", port), "the camera does not start")
        for question, text in (("1. ", "yard=http://127.0.0.1:8093/yard.mjpg"), ("2. ", ""), ("3. ", ""), ("4. ", "")):
            person.answer(question, f"{text}\n")
        person.answer("5. ", "\n")
        person.answer("User of the cameras", "\n")
        explain = ("-m", "embereye_cli", "explain", "device", "yard")
        wait_for(lambda: is_true_there(*explain), "the camera is not covered", 90)
        assert is_true_there("-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/')")
    finally:
        os.killpg(person.process.pid, signal.SIGTERM)
        print(person.end()[1])


def test_a_wrong_answer_is_asked_again_and_an_end_of_the_answers_writes_nothing(here):
    person = Person()
    person.answer("1. ", "yard=ftp://127.0.0.7\n")
    person.answer("1. ", "yard=127.0.0.7\n")
    person.answer("2. ", "\n")
    person.answer("3. ", "my yard\n")
    person.answer("3. ", "\x04")
    code, text = person.end()
    assert code == 2
    assert "unknown scheme" in text
    assert "use letters, digits" in text
    assert "nothing was written" in text
    assert not list(here.iterdir())


def test_a_camera_that_is_off_is_found_by_the_check_and_nothing_is_started(here, capsys):
    (port,) = free_ports(1)
    console, hub = map(str, free_ports(2))
    camera = f"yard=rtsp://127.0.0.1:{port}/live"
    assert main(["init", "--camera", camera, "--console-port", console, "--hub-port", hub, "--up"]) == 1
    printed = capsys.readouterr().out
    assert "camera yard: " in printed
    assert "Nothing was started" in printed
    assert f"embereye up fleet.yaml --console-port {console} --hub-port {hub}" in printed


def test_a_named_login_is_to_be_stored_before_the_check(here, capsys):
    words = ["init", "--camera", "yard=127.0.0.7", "--credentials", "gate"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "embereye credentials set gate --folder .embereye/credentials" in printed
    assert "checked" not in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sensor", "a=zigbee2mqtt/x"], "--broker is missing"),
        (["--camera", "yard=ftp://127.0.0.7"], "unknown scheme"),
        (["--camera", "127.0.0.7", "--zone", "my yard"], 'zone "my yard"'),
        (["--camera", "127.0.0.7", "--credentials", "My Login"], 'credentials "My Login"'),
        (["--camera", "rtsp://me:a/b@127.0.0.7/live"], "%2F"),
    ],
)
def test_a_wrong_answer_is_named_and_nothing_is_written(words, sentence, here, capsys):
    assert init(*words) == 2
    assert sentence in capsys.readouterr().err
    assert not list(here.iterdir())


def test_the_notify_file_is_correct(here):
    pytest.importorskip("apprise")
    assert init("--camera", "127.0.0.7", "--notify", "ntfys://fire-7c1e9f40b2") == 0
    assert main(["notify", "check", "notify.yaml"]) == 0
