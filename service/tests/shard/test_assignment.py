import asyncio
import contextlib
import errno
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from harness.eventually import eventually
from harness.settings import camera_settings, sensor_settings

from embereye.process.tasks import beside
from embereye.shard.assignment import Assignments, follow_file, load
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device


def assignment(epoch: int, *devices: str) -> Assignment:
    owned = [Device(id=name) for name in devices]
    return Assignment(fleet="default/sensors/f", epoch=epoch, devices=owned, sensor=sensor_settings())


def test_a_newer_epoch_takes_force_and_listeners_are_called() -> None:
    assignments, heard = Assignments(), []
    unsubscribe = assignments.subscribe(lambda current: heard.append(current.epoch))
    assert assignments.offer(assignment(3, "a")) == ""
    assert assignments.offer(assignment(4, "a", "b")) == ""
    unsubscribe()
    assignments.offer(assignment(5))
    assert heard == [3, 4]


@pytest.mark.parametrize("field", ["deadline_ns", "window_ns", "overflow", "heat", "gas", "commands", "digital_flame"])
def test_incomplete_settings_are_refused_by_name(field: Any) -> None:
    partial = assignment(4, "a")
    partial.sensor.ClearField(field)
    assignments = Assignments()
    assert assignments.offer(partial).startswith(f"sensor.{field} is not set")
    assert assignments.current == Assignment()
    assert assignments.offer(assignment(4, "a")) == ""


def test_a_threshold_of_zero_is_valid_but_a_curve_without_a_scale_is_not() -> None:
    frozen = assignment(4, "a")
    frozen.sensor.heat.pre_alarm_c = frozen.sensor.smoke.pre_alarm = 0
    assert Assignments().offer(frozen) == ""
    frozen.sensor.gas.curve_scale = 0
    assert Assignments().offer(frozen).startswith("sensor.gas.curve_scale is not set")


def test_an_assignment_without_settings_is_refused() -> None:
    assert "is not set" in Assignments().offer(Assignment(fleet="default/sensors/f", epoch=4))


@pytest.mark.parametrize("field", ["deadline_ns", "detectors", "evidence_before_ns", "heat"])
def test_a_cameras_settings_have_to_be_complete_too(field: Any) -> None:
    watched = Assignment(fleet="default/cameras/f", epoch=1, camera=camera_settings())
    assert Assignments().offer(watched) == ""
    watched.camera.ClearField(field)
    assert Assignments().offer(watched).startswith(f"camera.{field} is not set")


def test_an_older_epoch_is_refused_with_the_reason() -> None:
    assignments = Assignments()
    assignments.offer(assignment(4, "a"))
    assert assignments.offer(assignment(3, "b")) == "epoch 3 is older than epoch 4 in force"
    assert assignments.current == assignment(4, "a")


def test_the_same_epoch_is_accepted_again_but_not_with_other_contents() -> None:
    assignments = Assignments()
    assignments.offer(assignment(4, "a"))
    assert assignments.offer(assignment(4, "a")) == ""
    assert "other contents" in assignments.offer(assignment(4, "b"))


def test_a_file_that_is_no_assignment_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "assignment.json"
    assert load(path) is None
    path.write_text("{")
    with pytest.raises(ValueError, match=r"assignment\.json is not an assignment"):
        load(path)


def write(folder: Path, epoch: int, placement_epoch: int, *, packed: bool) -> Path:
    owners = {"a": "f-0", "b": "f-1"}
    files = {
        "f-0.json": json_format.MessageToJson(Assignment(shard="f-0", epoch=epoch, devices=[Device(id="a")])),
        "placement.json": json.dumps({"epoch": placement_epoch, "devices": owners}),
    }
    for name, text in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text)
    return folder / "f-0.json"


@pytest.mark.parametrize("packed", [False, True])
def test_the_owners_of_other_devices_are_read_from_the_shared_file(tmp_path: Path, packed: bool) -> None:
    loaded = load(write(tmp_path, 4, 4, packed=packed))
    assert loaded is not None
    assert [device.id for device in loaded.devices] == ["a"]
    assert dict(loaded.elsewhere) == {"b": "f-1"}


def test_half_of_a_new_version_is_not_accepted(tmp_path: Path) -> None:
    assert load(write(tmp_path, 5, 4, packed=False)) is None


def test_files_of_a_mounted_folder_are_read_in_one_version(tmp_path: Path) -> None:
    (tmp_path / "..new").mkdir()
    write(tmp_path / "..new", 5, 5, packed=True)
    (tmp_path / "..data").symlink_to("..new")
    loaded = load(tmp_path / "f-0.json")
    assert loaded is not None
    assert loaded.epoch == 5


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"garbage", "gzip"), (gzip.compress(b"{}")[:-1], "gzip"), (gzip.compress(b"\xff"), "text")],
    ids=["no gzip", "cut", "no text"],
)
def test_an_error_names_a_broken_compressed_file(tmp_path: Path, content: bytes, why: str) -> None:
    write(tmp_path, 4, 4, packed=True)
    (tmp_path / "f-0.json.gz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"f-0\.json\.gz is not {why}: "):
        load(tmp_path / "f-0.json")


async def test_a_file_is_followed_through_garbage_and_replacement(tmp_path: Path) -> None:
    path, assignments = tmp_path / "assignment.json", Assignments()
    task = asyncio.ensure_future(follow_file(path, assignments, period=0.01))

    async def until_epoch(epoch: int) -> None:
        await eventually(lambda: assignments.current.epoch == epoch, 10)

    path.write_text(json_format.MessageToJson(assignment(1, "a")))
    await until_epoch(1)
    path.write_text("garbage")
    await asyncio.sleep(0.05)
    assert not task.done()
    replacement = tmp_path / "new"
    replacement.write_text(json_format.MessageToJson(assignment(2, "a")))
    replacement.rename(path)
    await until_epoch(2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, assignments = tmp_path / "assignment.json", Assignments()
    path.write_text(json_format.MessageToJson(assignment(1, "a")))
    read, failures = Path.read_text, [errno.EMFILE] * 3

    def busy(file: Path, *options: Any) -> str:
        if file == path and failures:
            number = failures.pop()
            raise OSError(number, os.strerror(number), str(file))
        return read(file, *options)

    monkeypatch.setattr(Path, "read_text", busy)
    async with beside(follow_file(path, assignments, period=0.01), name="follow"), asyncio.timeout(10):
        while assignments.current.epoch != 1:
            await asyncio.sleep(0.005)
    assert caplog.text.count(f"assignment file refused: {path} cannot be read: Too many open files") == 1


async def test_a_placement_that_was_broken_is_read_again_once_it_is_whole(tmp_path: Path) -> None:
    path, assignments = tmp_path / "f-0.json", Assignments()
    path.write_text(json_format.MessageToJson(assignment(4, "a")))
    placement = tmp_path / "placement.json"
    placement.write_text("{")
    async with beside(follow_file(path, assignments, period=0.01), name="follow"), asyncio.timeout(10):
        await asyncio.sleep(0.05)
        placement.write_text(json.dumps({"epoch": 4, "devices": {"b": "f-1"}}))
        while assignments.current.epoch != 4:
            await asyncio.sleep(0.005)
    assert dict(assignments.current.elsewhere) == {"b": "f-1"}
