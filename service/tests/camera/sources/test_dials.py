import asyncio

from harness.eventually import eventually

from embereye.camera.sources.dials import DialLimiter

from ..conftest import assignment, device, status_of
from .rtp.rtsp_camera import RtspCamera


async def entered(dials, log, name, until):
    async with dials:
        log.append(name)
        await until.wait()
    log.append(f"{name} left")


async def test_a_long_dial_makes_room_for_one_other_and_continues():
    dials, log, over, later = DialLimiter(1, patience=0.01), [], asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(entered(dials, log, "first", over))
        second = tasks.create_task(entered(dials, log, "second", over))
        await eventually(lambda: log == ["first", "second"])
        over.set()
        await second
    patient = DialLimiter(1, patience=60)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(entered(patient, log, "third", later))
        fourth = tasks.create_task(entered(patient, log, "fourth", over))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert log[-1] == "third"
        later.set()
        await fourth
    assert sorted(log[2:4]) == ["first left", "second left"]
    assert not dials.locked()
    assert not patient.locked()


async def test_cameras_that_never_answer_delay_no_others(running):
    silent = [f"silent-{number}" for number in range(12)]
    async with RtspCamera(answers={"OPTIONS": b""}).serving() as mute, RtspCamera().serving() as camera:
        running.shard.apply(
            assignment(1, *(device(name, f"rtsp://{mute.address}/{name}") for name in silent),
                       device("good", f"rtsp://{camera.address}/live"))
        )  # fmt: skip
        await eventually(lambda: status_of(running.shard, "good").covered)
        assert {status_of(running.shard, name).state for name in silent} == {"connecting"}
