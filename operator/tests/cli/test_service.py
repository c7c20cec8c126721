"""`embereye service`: the unit, as systemd verifies it, and the files that it writes and deletes."""

import re
import shutil
import stat
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
import yaml
from harness.need import SYSTEMD

from embereye_cli.main import main
from embereye_cli.processes import up
from embereye_cli.service.install import _closed_to_others, _closed_to_service, _read_options
from embereye_cli.service.unit import DATA, build_unit, is_stable

from ..api.test_schema import ROOT

FLEET = ROOT / "charts/embereye/examples/sensorfleet.yaml"
HALL = """
apiVersion: embereye.dev/v1alpha1
kind: SensorFleet
metadata: {name: hall}
spec: {sensors: [{id: s-01, zone: hall}], listen: {tcp: 9001}}
"""


def install(root: Path, *options: str) -> int:
    return main(["service", "install", str(FLEET), "--root", str(root), *options])


def test_installing_writes_the_unit_and_the_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(tmp_path, "--up", "--listen", "0.0.0.0") == 0
    unit = (tmp_path / "etc/systemd/system/embereye.service").read_text()
    assert (
        f"ExecStart={sys.executable} -m embereye_cli up --data /var/lib/embereye --logs stderr "
        "--listen 0.0.0.0 /etc/embereye/sensorfleet.yaml\n"
    ) in unit
    assert "Restart=always" in unit
    copy = tmp_path / "etc/embereye/sensorfleet.yaml"
    assert copy.read_text() == FLEET.read_text()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o644, "the service's user reads it"
    assert "data in /var/lib/embereye" in capsys.readouterr().out


def test_readable_passwords_in_manifests_cause_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "yard.yaml"
    manifest.write_text(
        "apiVersion: embereye.dev/v1alpha1\nkind: CameraFleet\nmetadata: {name: yard}\nspec:\n  cameras:\n"
        "    - {id: gate, zone: yard, source: 'rtsp://me:a-word@10.0.0.7/1'}\n"
        "    - {id: door, zone: yard, source: 'http://10.0.0.8/1?mail=a@b.example'}\n"
        "    - {id: roof, zone: yard, source: 'rtsp://10.0.0.9/1', streams: {record: 'rtsp://me:a-word@10.0.0.9/2'}}\n"
    )
    assert main(["service", "install", str(manifest), "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().err
    assert "can read the passwords of gate, roof in" in printed
    assert "a-word" not in printed


def test_installing_again_accepts_the_installed_manifests(tmp_path: Path) -> None:
    install(tmp_path)
    copy = tmp_path / "etc/embereye/sensorfleet.yaml"
    copy.write_text(copy.read_text().replace("warehouse", "attic"))
    assert main(["service", "install", str(copy), "--root", str(tmp_path), "--up", "--console-port", "8443"]) == 0
    assert "attic" in copy.read_text()
    assert "--console-port 8443" in (tmp_path / "etc/systemd/system/embereye.service").read_text()


@pytest.mark.needs(SYSTEMD)
@pytest.mark.parametrize("folder", ["plain", "with space", "per%cent", "dol$lar"])
def test_systemd_accepts_the_unit(tmp_path: Path, folder: str) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    shutil.copy(shutil.which("true") or "/bin/true", python)
    unit = tmp_path / "embereye.service"
    unit.write_text(build_unit(str(python), ["a b.yaml"], ["--allowed-host", "fire.example.com"]))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    remarks = [line for line in done.stderr.splitlines() if "embereye" in line]
    assert (done.returncode, remarks) == (0, [])


def test_removing_deletes_data_only_with_purge(tmp_path: Path) -> None:
    data = tmp_path / "var/lib/embereye"
    data.mkdir(parents=True)
    (data / "hub.db").write_text("history")
    install(tmp_path)
    assert main(["service", "remove", "--root", str(tmp_path)]) == 0
    assert not (tmp_path / "etc/systemd/system/embereye.service").exists()
    assert (data / "hub.db").exists()
    assert (tmp_path / "etc/embereye/sensorfleet.yaml").exists()
    assert main(["service", "remove", "--root", str(tmp_path), "--purge"]) == 0, "as the one before says"
    assert not data.exists()
    assert not (tmp_path / "etc/embereye").exists()
    data.mkdir()
    install(tmp_path)
    assert main(["service", "remove", "--root", str(tmp_path), "--purge"]) == 0
    assert not data.exists()
    assert not (tmp_path / "etc/embereye").exists()
    assert main(["service", "remove", "--root", str(tmp_path)]) == 0, "there is nothing any more"


def test_a_link_out_of_the_image_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, outside = tmp_path / "image", tmp_path / "data"
    install(image)
    (outside / "hub").mkdir(parents=True)
    (image / "var/lib").mkdir(parents=True)
    (image / "var/lib/embereye").symlink_to(outside)
    assert main(["service", "remove", "--root", str(image), "--purge"]) == 2
    assert f"{image}/var/lib/embereye is a link to {outside}, which is not below {image}" in capsys.readouterr().err
    assert (outside / "hub").is_dir()
    assert (image / "etc/embereye").is_dir()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--up", "--lisen", "0.0.0.0"], "--up: --lisen: there is no such option. Did you mean --listen?"),
        (["--up", "--data", "/srv"], "--data is fixed for the service: its data is in /var/lib/embereye"),
        (["--up", "--log", "files"], "--logs is fixed for the service"),
        (["--up", "other.yaml"], "--up: other.yaml is not an option. Name manifests before --up."),
        (["--up", "--listen", "router.lan"], "is not an address of this machine"),
        (["--up", "--listen", "0.0.0.0"], "default/sensors/hall: spec.access is not set"),
        (["--up", "--shard-ports", "80"], "--shard-ports 80 is not between"),
        (["--up", "--certificate-life", "1s"], "--certificate-life is not between"),
        (["--up", "--console-port", "50052"], "port 50052 is wanted by the console and by the hub"),
        (["--up", "--hub-port", "9001"], "port 9001 is wanted by default/sensors/hall (spec.listen.tcp)"),
        (["--up", "--webhooks", "nowhere.yaml"], "--webhooks nowhere.yaml: No such file"),
        (["--up", "--webhooks", str(FLEET)], 'webhooks is missing. Write {"webhooks"'),
    ],
)
def test_a_mistake_is_reported_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    manifest = tmp_path / "hall.yaml"
    manifest.write_text(HALL)
    root = tmp_path / "root"
    root.mkdir()
    assert main(["service", "install", str(manifest), "--root", str(root), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not any(root.iterdir())


def test_webhooks_are_copied_for_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = tmp_path / "hooks.yaml"
    hooks.write_text("webhooks: [{name: pager, url: 'https://pager.example.com/'}]")
    hooks.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "root"
    assert install(root, "--up", "--webhooks=hooks.yaml", "--console-port", "8443") == 0
    copy = root / "etc/embereye/hooks.yaml"
    assert (copy.read_text(), stat.S_IMODE(copy.stat().st_mode)) == (hooks.read_text(), 0o644)
    unit = (root / "etc/systemd/system/embereye.service").read_text()
    assert " --console-port 8443 --webhooks /etc/embereye/hooks.yaml /etc/embereye/sensorfleet.yaml\n" in unit


def test_the_unit_has_whole_paths_to_the_hubs_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notify.yaml").write_text("routes: [{name: phone, url: 'ntfys://fire-7c1e9f40b2'}]")
    (tmp_path / "modbus.yaml").write_text("panels: [{name: relays, host: 10.0.0.7, rules: [{coil: 0, zones: ['*']}]}]")
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "root"
    assert install(root, "--up", "--notify=notify.yaml", "--modbus", "modbus.yaml", "--console-port", "8443") == 0
    (command,) = re.findall("^ExecStart=.*", (root / "etc/systemd/system/embereye.service").read_text(), re.MULTILINE)
    words = command.split()
    assert words[words.index("--notify") + 1] == str(tmp_path.resolve() / "notify.yaml")
    assert words[words.index("--modbus") + 1] == str(tmp_path.resolve() / "modbus.yaml")
    assert words[words.index("--console-port") + 1] == "8443"


def test_a_file_that_the_service_cannot_read_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "notify.yaml"
    file.write_text("routes: []")
    file.chmod(0o600)
    assert _closed_to_service([Path("/etc/passwd"), file]) in {file, *file.parents}
    assert _closed_to_service([Path("/etc/passwd"), DATA.resolve() / "notify.yaml"]) is None


@pytest.mark.parametrize(
    ("answers", "stays"),
    [
        (["ActiveState=active\nNRestarts=0\n"], True),
        (["ActiveState=activating\nNRestarts=0\n", "ActiveState=active\nNRestarts=0\n"], True),
        (["ActiveState=active\nNRestarts=0\n", "ActiveState=active\nNRestarts=1\n"], False),
        (["ActiveState=activating\nNRestarts=1\n"], False),
        (["ActiveState=failed\nNRestarts=0\n"], False),
    ],
)
def test_a_service_that_restarts_is_not_reported_as_started(answers: list[str], stays: bool) -> None:
    remarks = iter(answers)
    last = answers[-1]
    assert is_stable(lambda *_: next(remarks, last), pause=0.0) is stays


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "embereye access link --data /var/lib/embereye"),
        (
            ["--listen", "0.0.0.0", "--advertise", "fire.lan", "--hub-port", "50062", "--console-port", "8443"],
            "embereye access link --data /var/lib/embereye",
        ),
    ],
)
def test_the_sign_in_command_names_the_data_folder(words: list[str], printed: str) -> None:
    assert _read_options(words).link_command() == printed


def test_an_installation_that_others_cannot_read_is_detected(tmp_path: Path) -> None:
    home = tmp_path / "home" / "venv"
    home.mkdir(parents=True)
    tmp_path.chmod(0o755)
    (tmp_path / "home").chmod(0o700)
    assert _closed_to_others(home / "bin") in {tmp_path / "home", *tmp_path.parents}


def test_the_compose_file_has_valid_options_and_the_current_version() -> None:
    (service,) = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"].values()
    version = yaml.safe_load((ROOT / "charts/embereye/Chart.yaml").read_text())["appVersion"]
    assert service["image"] == f"${{EMBEREYE_IMAGE:-embereye:{version}}}"
    parser = ArgumentParser()
    up.add_arguments(parser)
    command, *options = service["command"]
    parsed = parser.parse_args([option.replace("${", "").partition(":?")[0] for option in options])
    assert (command, parsed.listen, parsed.logs) == ("up", "0.0.0.0", "stderr")
    mounted = {mount["target"] if isinstance(mount, dict) else mount.partition(":")[2] for mount in service["volumes"]}
    assert mounted == {str(parsed.data), *map(str, parsed.manifests)}
