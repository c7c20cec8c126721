"""`embereye init` writes fleets that `embereye up` accepts, keeps passwords apart, and overwrites nothing."""

import os
import pty
import subprocess
import sys
from typing import Any

import pytest
import yaml

from embereye_cli.main import main
from embereye_operator.up.folder import load_fleets
from embereye_operator.up.options import UpOptions, wanted_ports

INIT = [sys.executable, "-m", "embereye_cli", "init"]
CAMERA = "yard=rtsp://viewer:p%40ss@10.0.0.7/live"
SENSOR = ["--sensor", "kitchen=zigbee2mqtt/Kitchen smoke", "--broker", "mqtt://10.0.0.2"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_become_fleets_that_up_accepts(here, capsys):
    words = ["init", "--camera", CAMERA, "--camera", "10.0.0.8", *SENSOR, "--notify", "ntfys://fire-7c1e9f40b2"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "embereye doctor fleet.yaml --notify notify.yaml" in printed
    assert "embereye up fleet.yaml --notify notify.yaml" in printed
    fleets = load_fleets([here / "fleet.yaml"])
    wanted_ports(UpOptions(manifests=[], data=here), fleets.values())  # refuses a port that both want
    devices: Any = [fleet.devices for fleet in fleets.values()]
    cameras, sensors = devices
    assert [(camera.id, camera.zone, camera.source) for camera in cameras] == [
        ("yard", "yard", "rtsp://10.0.0.7/live"), ("home", "home", "onvif://10.0.0.8"),
    ]  # fmt: skip
    assert [(sensor.zone, sensor.source, sensor.template) for sensor in sensors] == [
        ("kitchen", "mqtt:zigbee2mqtt/Kitchen smoke", "zigbee2mqtt")
    ]
    assert yaml.safe_load((here / "notify.yaml").read_text())["routes"][0]["url"] == "ntfys://fire-7c1e9f40b2"


def test_a_password_in_an_address_is_stored_apart_and_privately(here):
    assert main(["init", "--camera", CAMERA]) == 0
    assert "p%40ss" not in (here / "fleet.yaml").read_text()
    password = here / ".embereye/credentials/cameras/password"
    assert password.read_text() == "p@ss"
    assert password.stat().st_mode & 0o077 == 0
    assert (here / ".embereye/credentials").stat().st_mode & 0o077 == 0


def test_different_logins_get_different_names(here):
    other = "rtsp://admin:other@10.0.0.9/live"
    assert main(["init", "--camera", CAMERA, "--camera", other, "--camera", "viewer=" + CAMERA.partition("=")[2]]) == 0
    (fleet,) = load_fleets([here / "fleet.yaml"]).values()
    assert [camera.credentials_ref.name for camera in fleet.devices] == ["cameras", "cameras-2", "cameras"]


def test_existing_files_are_kept_unless_forced(here, capsys):
    (here / "fleet.yaml").write_text("mine")
    assert main(["init", "--camera", CAMERA]) == 2
    assert "fleet.yaml: exists already" in capsys.readouterr().err
    assert (here / "fleet.yaml").read_text() == "mine"
    assert not (here / ".embereye").exists()
    assert main(["init", "--camera", CAMERA, "--force"]) == 0


def test_without_a_terminal_nothing_is_asked():
    done = subprocess.run(INIT, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"standard input is no terminal" in done.stderr


def test_five_questions_are_asked_at_a_terminal(here):
    leader, follower = pty.openpty()
    pipes: Any = {"stdin": follower, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    asking = subprocess.Popen(INIT, **pipes, start_new_session=True)
    os.write(leader, b"yard=10.0.0.7 hall=10.0.0.8\n\nhome\n\n\nviewer\n")
    text = b""
    while b"Password: " not in text:  # what was typed before is discarded there
        text += (read := os.read(asking.stdout.fileno(), 1000))
        assert read, text
    os.write(leader, b"s3cret\n")
    text = (text + asking.communicate(timeout=60)[0]).decode()
    os.close(leader)
    os.close(follower)
    assert asking.returncode == 0, text
    assert [number for number in "12345" if f"{number}. " in text] == list("12345")
    (fleet,) = load_fleets([here / "fleet.yaml"]).values()
    assert [(camera.zone, camera.credentials_ref.name) for camera in fleet.devices] == [
        ("yard", "cameras"), ("hall", "cameras")
    ]  # fmt: skip
    assert (here / ".embereye/credentials/cameras/password").read_text() == "s3cret"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sensor", "a=zigbee2mqtt/x"], "--broker is missing"),
        (["--camera", "yard=ftp://10.0.0.7"], "unknown scheme"),
        (["--camera", "10.0.0.7", "--zone", "my yard"], 'zone "my yard"'),
        (["--camera", "10.0.0.7", "--credentials", "My Login"], 'credentials "My Login"'),
        (["--camera", "rtsp://me:a/b@10.0.0.7/live"], "%2F"),
    ],
)
def test_a_wrong_answer_is_named_and_nothing_is_written(words, sentence, here, capsys):
    assert main(["init", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(here.iterdir())


def test_the_notify_file_is_correct(here):
    pytest.importorskip("apprise")
    assert main(["init", "--camera", "10.0.0.7", "--notify", "ntfys://fire-7c1e9f40b2"]) == 0
    assert main(["notify", "check", "notify.yaml"]) == 0
