"""Fleets of `embereye up` that come, go and share names while it runs, and the clock of their passes."""

import asyncio
import errno
import json
import math
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.documents import read_document
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.runtime.local import runtime as local
from embereye_operator.runtime.local.processes import Supervisor
from embereye_operator.runtime.local.runtime import LocalRuntime, simulated_cameras
from embereye_operator.up import up as module
from embereye_operator.up.display import Lines
from embereye_operator.up.folder import load_fleets
from embereye_operator.up.options import UpOptions
from embereye_operator.up.up import TARGETS, Up

from .test_up import SENSORS, free_port, house

HOUR = 3_600 * SECOND


@pytest.mark.parametrize(
    ("content", "content_kind"), [("viewer hush", "text"), ("- a: 1", "a list"), ("17", "a single value")]
)
def test_a_file_without_a_manifest_is_described(content: str, content_kind: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(content)
    expected = f"{path}:1: contains {content_kind} instead of a SensorFleet or a CameraFleet"
    with pytest.raises(UserError, match=re.escape(expected)):
        load_fleets([path])


LISTED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: attic}
data:
  list: |
    - {id: s-03, zone: attic}
"""


def with_list(manifest: str) -> str:
    return manifest.replace("  sensors:", "  sensorsFrom: [{configMapRef: {name: attic}}]\n  sensors:")


def test_devices_of_a_config_map_in_the_files_belong_to_the_fleet(tmp_path: Path) -> None:
    fleet, lists = tmp_path / "fleet.yaml", tmp_path / "lists.yaml"
    fleet.write_text(with_list(sensors()))
    lists.write_text(LISTED)
    (loaded,) = load_fleets([lists, fleet]).values()
    assert [device.id for device in loaded.devices] == ["s-01", "s-02", "s-03"]
    assert not loaded.devices_from


@pytest.mark.parametrize(
    ("listed", "sentence"),
    [
        ("", "ConfigMap attic does not exist: add its manifest to this file or another"),
        (LISTED.replace("metadata: {", "metadata: {namespace: other, "), "ConfigMap attic does not exist"),
        (LISTED.replace("s-03", "s-02"), "ConfigMap attic, key list: s-02 declared twice"),
        (LISTED.replace("- {id: s-03, zone: attic}", "- {id: s-03}"), "ConfigMap attic, key list: "),
        (LISTED + "---" + LISTED, "ConfigMap default/attic is declared twice"),
        (LISTED.replace("list: |", "list:"), "ConfigMap default/attic: data.list: "),
        (LISTED.replace("\ndata:", "\ndato:"), "ConfigMap default/attic: dato: there is no such field"),
        (LISTED.replace("name: attic", ""), "ConfigMap: metadata.name: is required"),
    ],
)
def test_a_missing_or_invalid_list_of_devices_is_named(listed: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"{with_list(sensors())}---{listed}")
    with pytest.raises(UserError, match=re.escape(sentence)) as raised:
        load_fleets([path])
    assert re.match(rf"{re.escape(str(path))}(:\d+)?: ", str(raised.value))


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("deadline: 5", "fleet.yaml:5: SensorFleet default/hall: spec.deadline: 5 needs a unit: 5s for seconds"),
        ('deadline: "5"', 'fleet.yaml:5: SensorFleet default/hall: spec.deadline: "5" is not a duration such as 50ms'),
        ("sensors: [{id: 1234, zone: a}]", 'spec.sensors[0].id: 1234 is a number, not text: put it in quotes: "1234"'),
        ("sensers: []", "fleet.yaml:5: SensorFleet default/hall: spec.sensers: there is no such field"),
        ("shards: 0\n  deadline: 5", "fleet.yaml:6: SensorFleet default/hall: spec.deadline: 5 needs a unit"),
    ],
)
def test_a_mistake_in_a_manifest_is_named_with_file_line_and_remedy(field: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        f"apiVersion: embereye.dev/v1beta1\nkind: SensorFleet\nmetadata: {{name: hall}}\nspec:\n  {field}\n"
    )
    with pytest.raises(UserError, match=re.escape(sentence)):
        load_fleets([path])


@pytest.mark.parametrize(
    ("camera", "sentence"),
    [
        ("source: 192.168.1.20", "Did you mean rtsp://192.168.1.20/…?"),
        ("source: admin:secret@192.168.1.20/s", "Did you mean rtsp://192.168.1.20/…?"),
        ('source: "rtsp://admin:p@ss/secret#1@192.168.1.20"', "the password contains @ / #. Write %40 %2F %23 instead"),
        ("source: push, credentialsRef: gate", 'credentialsRef: "gate" is a name: write {name: gate}'),
    ],
)
def test_a_mistake_in_a_cameras_address_is_named_with_its_line(camera: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "apiVersion: embereye.dev/v1beta1\nkind: CameraFleet\nmetadata: {name: yard}\n"
        f"spec:\n  cameras:\n    - {{id: c-1, zone: yard, {camera}}}\n"
    )
    with pytest.raises(UserError, match=re.escape(sentence)) as raised:
        load_fleets([path])
    assert str(raised.value).startswith(f"{path}:6: CameraFleet default/yard: spec.cameras[0].")


def test_lists_of_devices_without_a_fleet_are_no_fleets(tmp_path: Path) -> None:
    path = tmp_path / "lists.yaml"
    path.write_text(LISTED)
    with pytest.raises(UserError, match="contains no fleet"):
        load_fleets([path])


CAMERAS = """
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {name: yard}
spec:
  cameras:
    - {id: c-01, zone: yard, source: "http://127.0.0.1:80801/video"}
    - {id: c-02, zone: yard, source: "http://[::1/video"}
    - {id: c-03, zone: yard, source: "http://127.0.0.1:8554/video"}
"""


def test_a_camera_with_an_invalid_address_is_not_simulated() -> None:
    fleet = parse_fleet(read_document(CAMERAS))
    assert simulated_cameras(fleet) == {8554: ["c-03=yard"]}


class Waiting(LocalRuntime):
    """A runtime whose shards answer only once `answer` is set."""

    def __init__(self, folder: Path, supervisor: Supervisor) -> None:
        super().__init__(folder, "127.0.0.1:1", supervisor)
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.answer.set()

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        self.asked.set()
        await self.answer.wait()
        return None


Begin = Callable[[str], Up]


def sensors(namespace: str = "default") -> str:
    return SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1).replace(
        "name: hall", f"name: hall, namespace: {namespace}"
    )


@pytest.fixture
async def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Begin]:
    """Start one `up` of the fleets in a manifest, without a hub; its shards are idle processes."""
    sleeper = (sys.executable, "-c", "import time; time.sleep(3600)")
    monkeypatch.setattr(local, "embereye_command", lambda *_: sleeper)
    supervisor = Supervisor(tmp_path / "logs", lambda _: None)
    runtime = Waiting(tmp_path, supervisor)

    def make(manifest: str) -> Up:
        path = tmp_path / "fleet.yaml"
        path.write_text(manifest)
        up = Up(UpOptions(manifests=[path], data=tmp_path), load_fleets([path]))
        up._runtime, up._supervisor, up._display = runtime, supervisor, Lines()
        return up

    yield make
    await supervisor.stop_all(supervisor.names)
    await runtime.close()


async def test_fleets_of_one_name_in_two_namespaces_have_separate_shards(begin: Begin) -> None:
    up = begin(f"{sensors('north')}---{sensors('south')}")
    for _ in range(2):
        for state in up._fleets.values():
            await up._reconcile(state)
            assert not state.failing
    assert len(up._supervisor.names) == 2
    north, south = (state.fleet for state in up._fleets.values())
    for name in up._supervisor.names:
        environment = up._supervisor[name].spec.environment
        fleet = north if environment["EMBEREYE_FLEET"] == north.key else south
        assert int(environment["EMBEREYE_SHARED_TCP_PORT"]) == fleet.ports["tcp"]
        assert (
            up._runtime.address(fleet, "hall-sensors-0").control == f"127.0.0.1:{environment['EMBEREYE_CONTROL_PORT']}"
        )


async def test_waiting_for_readiness_ends_after_the_given_time(begin: Begin) -> None:
    up = begin(sensors())
    assert not await up._until_ready(asyncio.Event(), 0.1)
    stop = asyncio.Event()
    stop.set()
    assert await up._until_ready(stop, None)


async def test_passes_use_a_clock_that_no_person_sets(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: list[tuple[int, int]] = []

    async def reconcile(
        fleet: Fleet, runtime: object, clock: Callable[[], int], settings: object, memory: object,
        stepped: Callable[[], int] = lambda: 0,
    ) -> object:  # fmt: skip
        clocks.append((clock(), stepped()))
        raise RuntimeError("not now")

    up = begin(sensors())
    (state,) = up._fleets.values()
    monkeypatch.setattr(module, "reconcile", reconcile)
    await up._reconcile(state)
    wall = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() - HOUR)
    await up._reconcile(state)
    (before, _), (after, stepped) = clocks
    assert after >= before
    assert stepped == pytest.approx(-HOUR, abs=60 * SECOND)


async def test_a_full_disk_is_reported_with_the_folder_and_without_a_traceback(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile(*_: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    up = begin(sensors())
    (state,) = up._fleets.values()
    monkeypatch.setattr(module, "reconcile", reconcile)
    await up._reconcile(state)
    expected = f"cannot be reconciled: --data {up._options.data} cannot be written (No space left on device): "
    assert expected in capsys.readouterr().out
    assert caplog.records == []


async def test_an_unusable_data_folder_leaves_the_terminal_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Lines] = []

    class Screen(Lines):
        def __init__(self) -> None:
            super().__init__()
            shown.append(self)

        def close(self) -> None:
            shown.remove(self)

    monkeypatch.setattr(Up, "_make_display", lambda _: Screen())
    (tmp_path / "identity").write_text("no folder")
    (path := tmp_path / "fleet.yaml").write_text(sensors())
    options = UpOptions(manifests=[path], data=tmp_path, hub_port=free_port(), console_port=free_port())
    with pytest.raises(UserError, match="cannot be written"):
        await Up(options, load_fleets([path])).run(asyncio.Event())
    assert shown == []


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every new write fail."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full:
        full.setattr(local, "write_whole", refuse)
        yield


async def test_a_full_disk_is_shown_once_until_everything_is_written(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    up = begin(sensors())
    (state,) = up._fleets.values()
    with full_disk(monkeypatch):
        for _ in range(3):
            await up._reconcile_due(math.inf)
            assert state.failing
    output = capsys.readouterr().out
    assert output.count("No space left on device") == output.count("free space") == 1
    assert "again" not in output
    for _ in range(2):
        await up._reconcile_due(math.inf)
    assert capsys.readouterr().out.count("is reconciled again") == 1
    stored = [json.loads(path.read_text()) for path in (tmp_path / "objects").iterdir()]
    assert stored
    assert all(manifest in stored for manifest in up._runtime._objects.all.values())
    assert list((tmp_path / "config").glob("*/*"))


async def test_with_a_full_disk_the_status_is_shown_and_its_file_written_later(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    up = begin(sensors())
    (state,) = up._fleets.values()
    for _ in range(2):
        await up._reconcile_due(math.inf)
    (file,) = (tmp_path / "fleets").iterdir()
    capsys.readouterr()
    with full_disk(monkeypatch):
        for shards in (2, 3):
            await up._runtime.write_status(state.fleet, {"shards": shards})
            await up._runtime.write_status(state.fleet, {"shards": shards})
            up._write_statuses()
    assert up._runtime.statuses[state.fleet.key] == {"shards": 3}
    assert json.loads(file.read_text())["status"] != {"shards": 3}
    up._write_statuses()
    assert json.loads(file.read_text())["status"] == {"shards": 3}
    first, second = capsys.readouterr().out.splitlines()
    assert "cannot be written (No space left on device): free space" in first
    assert "can be written again" in second


async def test_a_full_disk_for_the_list_of_metrics_is_logged_once(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    up = begin(sensors())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(module, "write_whole", refuse)
        for _ in range(2):
            up._write_targets()
    assert len(caplog.records) == 1
    up._write_targets()
    assert json.loads((tmp_path / TARGETS).read_text())


async def test_a_pass_in_progress_creates_nothing_for_a_removed_fleet(begin: Begin) -> None:
    up = begin(sensors())
    (state,) = up._fleets.values()
    await up._reconcile(state)
    assert up._supervisor.names
    runtime: Any = up._runtime
    await runtime.scale(state.fleet, 2)
    runtime.asked.clear()
    runtime.answer.clear()
    passing = asyncio.ensure_future(up._reconcile(state))
    await runtime.asked.wait()
    going = asyncio.ensure_future(up._apply_fleets({}))
    while up._fleets:
        await asyncio.sleep(0)
    runtime.answer.set()
    await asyncio.gather(passing, going)
    assert not up._supervisor.names
    assert not await runtime.children(state.fleet)


async def test_a_fleet_that_needs_the_port_of_another_is_rejected(tmp_path: Path) -> None:
    async with house(tmp_path) as running:
        manifest = running.manifest.read_text()
        other = SENSORS.format(tcp=running.tcp, grpc=free_port(), shards=1).replace("hall}", "annex}")
        running.manifest.write_text(f"{manifest}---{other}")
        await running.until(lambda: running.said("change rejected"))
        assert running.said(f"port {running.tcp} is wanted by default/sensors/annex (spec.listen.tcp)")
        assert set(running.devices()) == {"s-01", "s-02"}
        running.manifest.write_text(f"{manifest}---{other.replace(f'tcp: {running.tcp}', f'tcp: {free_port()}')}")
        await running.until(lambda: running.said("default/sensors/annex: new"))


async def test_manifests_behind_links_are_followed_from_the_time_they_were_read(begin: Begin, tmp_path: Path) -> None:
    up = begin(sensors())
    (state,) = up._fleets.values()
    up._listened = set(up._taken)  # as in a running one
    link = tmp_path / "fleet.yaml"
    (tmp_path / "elsewhere").mkdir()

    def devices() -> set[str]:
        return {device.id for device in state.fleet.devices}

    async def save(name: str) -> None:
        """Replace the link to the previous release by one to the newest, as release tools do."""
        release = tmp_path / "elsewhere" / f"{name}.yaml"
        release.write_text(link.read_text().replace("id: s-02", f"id: {name}"))
        (tmp_path / "new").symlink_to(release)
        (tmp_path / "new").replace(link)

    await save("s-03")  # while the hub is starting
    async with beside(up._follow_files(asyncio.Event()), name="follow"), asyncio.timeout(10):
        while devices() != {"s-01", "s-03"}:
            await asyncio.sleep(0.05)
        link.write_text(link.read_text().replace("s-03", "s-02"))
        while devices() != {"s-01", "s-02"}:
            await asyncio.sleep(0.05)
        await save("s-04")
        while devices() != {"s-01", "s-04"}:
            await asyncio.sleep(0.05)


async def test_a_changed_list_of_devices_is_applied_like_a_changed_fleet(begin: Begin, tmp_path: Path) -> None:
    up = begin(f"{with_list(sensors())}---{LISTED}")
    (state,) = up._fleets.values()
    up._listened = set(up._taken)
    path = tmp_path / "fleet.yaml"
    async with beside(up._follow_files(asyncio.Event()), name="follow"), asyncio.timeout(10):
        path.write_text(path.read_text().replace("s-03", "s-04"))
        while {device.id for device in state.fleet.devices} != {"s-01", "s-02", "s-04"}:
            await asyncio.sleep(0.05)
    assert state.fleet.generation == 2
    await up._reconcile(state)
    assert not state.failing
    assert up._runtime.statuses[state.fleet.key]["devices"]["declared"] == 3
