import asyncio
import threading

import pytest
import yaml

from embereye.camera.sources.onvif.found import FoundCamera
from embereye.sim.cameras.onvif import OnvifCameras, serve_onvif
from embereye.wire.onvif.media import Profile
from embereye_cli.devices import discover
from embereye_cli.main import main


@pytest.fixture
def port():
    """Serve a camera that requires credentials, in a thread with another event loop."""
    served = OnvifCameras(
        {"gate": [(Profile("m", "main", "H264", 640, 480, 15, 0, "v"), "rtsp://127.0.0.1/1")]},
        user="viewer", password="pa ss",
    )  # fmt: skip
    bound, stop, loops = threading.Event(), asyncio.Event(), []

    async def serve():
        loops.append(asyncio.get_running_loop())
        await serve_onvif(served, "127.0.0.1", 0, stop, lambda _: bound.set())

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert bound.wait(20)
    yield served.port
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()


def test_a_fleet_goes_to_stdout_and_progress_to_stderr(port, tmp_path, capsys):
    (tmp_path / "who").write_text("viewer\npa ss\n")
    options = ["--interface", "lo", "--timeout", "0.8", "--credentials", str(tmp_path / "who")]
    options += ["--zone", "G?te=yard", "--zone", "rest"]
    assert main(["discover", *options, "--name", "gates", "--namespace", "site", "--secret", "own"]) == 0
    printed = capsys.readouterr()
    fleet = yaml.safe_load(printed.out)
    assert fleet["metadata"] == {"name": "gates", "namespace": "site"}
    entry = next(entry for entry in fleet["spec"]["cameras"] if f":{port}/" in entry["source"])
    assert entry == {
        "id": "gate", "zone": "yard", "location": "gate", "source": f"onvif://127.0.0.1:{port}/gate",
        "credentialsRef": {"name": "own"},
    }  # fmt: skip
    assert "pa ss" not in printed.out + printed.err
    assert "searching for cameras on lo (127.0.0.1) for 0.8 s" in printed.err


def test_credentials_come_from_the_environment_and_missing_ones_are_requested(port, monkeypatch, capsys):
    host = ["discover", "--host", f"127.0.0.1:{port}/gate"]
    assert main(host) == 0
    assert "some cameras need credentials: name them with --credentials FILE" in capsys.readouterr().err
    monkeypatch.setenv(discover.USERNAME, "viewer")
    monkeypatch.setenv(discover.PASSWORD, "pa ss")
    assert main(host) == 0
    printed = capsys.readouterr()
    assert "# EmberEye simulated gate" in printed.out
    assert "credentials:" not in printed.err


def test_a_stored_login_is_used_by_its_name_and_becomes_the_secret(port, tmp_path, monkeypatch, capsys):
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/username").write_text("viewer")
    (tmp_path / "gate/password").write_text("pa ss")
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path))
    assert main(["discover", "--host", f"127.0.0.1:{port}/gate", "--credentials", "gate"]) == 0
    printed = capsys.readouterr()
    (camera,) = yaml.safe_load(printed.out)["spec"]["cameras"]
    assert camera["credentialsRef"] == {"name": "gate"}
    assert "# EmberEye simulated gate" in printed.out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--timeout", "0"], "--timeout 0 is not between"),
        (["--zone", "a b"], '--zone "a b" is not a zone name'),
        (["--name", "A"], '--name "A" is not the name of a Kubernetes object'),
        (["--interface", "nonsense"], "no such interface"),
        (["--host", "me:secret@cam"], "leave user and password out"),
        (["--host", "a", "--interface", "lo"], "--interface has no effect with --host"),
        (["--credentials", "/nowhere"], "--credentials /nowhere: No such file"),
    ],
)
def test_impossible_search_options_are_refused_in_one_sentence(options, reason, capsys):
    assert main(["discover", *options]) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert "secret" not in printed.err
    assert not printed.out


def test_an_empty_search_is_reported_with_what_to_check(monkeypatch, capsys):
    async def search(*_):
        return []

    monkeypatch.setattr("embereye.camera.discovery.search", search)
    assert main(["discover", "--interface", "lo"]) == 1
    printed = capsys.readouterr()
    assert "no camera answered" in printed.err
    assert not printed.out


def test_a_camera_with_an_impossible_host_name_hides_no_other(monkeypatch, capsys):
    async def search(*_):
        return [FoundCamera("onvif://gate..local"), FoundCamera("onvif://127.0.0.1:1")]

    monkeypatch.setattr("embereye.camera.discovery.search", search)
    assert main(["discover", "--interface", "lo"]) == 0
    printed = capsys.readouterr()
    assert "onvif://gate..local: its host name is invalid\n" in printed.err
    assert 'source: "onvif://127.0.0.1:1"' in printed.out


def test_a_named_host_that_does_not_answer_is_not_printed_as_a_camera_found(capsys):
    assert main(["discover", "--host", "127.0.0.1:1"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "onvif://127.0.0.1:1: cannot connect" in printed.err
    assert "none of them answers as an ONVIF camera" in printed.err
