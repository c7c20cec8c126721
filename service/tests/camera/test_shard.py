import asyncio
import time
from itertools import pairwise

import pytest
from harness.eventually import eventually

from embereye.camera.device.view_store import view_of
from embereye.camera.scheduling.mailbox import Tally
from embereye.detect.vision.observation import Finding, Observation
from embereye.levels import Kind, Level, Sense
from embereye.sim.cameras.mjpeg import serve_mjpeg
from embereye.sim.cameras.thermal_camera import HEIGHT as THERMAL_HEIGHT
from embereye.sim.cameras.thermal_camera import WIDTH as THERMAL_WIDTH
from embereye.sim.cameras.thermal_camera import ThermalRoom
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.sim.scenes.fire import Fire
from embereye.sim.scenes.scene import render
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import MarkedPlace, MarkedPlaces, Region
from embereye.v1.shard_pb2 import Peer
from embereye.v1.types_pb2 import Mask
from embereye.wire.radiometric import wrap

from .conftest import assignment, device, noisy_jpeg, status_of


def push(shard, camera, image, time_ns=0):
    return shard.admit_pushed_frame(camera, image, time_ns, Tally())


async def push_all(shard, camera, frames, rate=15.0):
    """Push `frames` as fast as they are analysed, with capture times according to `rate`."""
    began = time.time_ns() - int(len(frames) / rate * SECOND)
    began = max(began, time.time_ns() - 50 * SECOND)
    ledger = shard._cameras[camera].arrivals.mailbox.ledger
    for number, frame in enumerate(frames):
        push(shard, camera, frame, began + int(number / rate * SECOND))
        await eventually(lambda: not ledger.waiting)


def balanced(status):
    ledger = status.ledger
    done = ledger.analysed + sum(ledger.shed.values()) + sum(ledger.rejected.values()) + ledger.duplicate
    return ledger.offered == done + ledger.waiting


async def test_garbage_is_collected_although_the_collector_rarely_runs(running):
    assert "collect-garbage" in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_camera_copies_its_part_of_an_assignment_so_that_the_rest_is_freed(running):
    given = assignment(1, device("c1"))
    before = given.camera.deadline_ns
    running.shard.apply(given)
    given.devices[0].zone, given.camera.deadline_ns = "elsewhere", 1
    camera = running.shard._cameras["c1"]
    assert (camera.device.zone, camera.analyser._settings.deadline_ns) == ("hall", before)


async def test_a_camera_is_uncovered_until_a_frame_of_it_is_analysed(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    assert not status_of(shard, "c1").covered
    assert status_of(shard, "c1").reason == "never heard; source: waiting for a sender"
    for number in range(3):
        push(shard, "c1", noisy_jpeg(number))
        await eventually(lambda: not shard._cameras["c1"].arrivals.mailbox.ledger.waiting)
    status = status_of(shard, "c1")
    assert status.covered
    assert status.ledger.analysed == 3
    assert balanced(status)
    names = {"fps", "fps.target", "age", "flame.score", "smoke.score", "motion"}
    assert {term.name for term in status.latest} == names
    assert status.state == "streaming"
    await eventually(lambda: running.changes)


async def test_a_camera_that_falls_silent_is_dark_after_its_deadline(running):
    running.shard.apply(assignment(1, device("c1"), deadline_s=0.5))
    push(running.shard, "c1", noisy_jpeg())
    await eventually(lambda: status_of(running.shard, "c1").covered)
    status = status_of(running.shard, "c1", time.time_ns() + 3 * SECOND)
    assert not status.covered
    assert "silent for" in status.reason
    assert status.state == "waiting for a sender"


async def test_unusable_frames_are_counted_and_named_as_the_reason(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    push(shard, "c1", noisy_jpeg()[:-9])
    await eventually(lambda: status_of(shard, "c1").ledger.rejected)
    push(shard, "c1", b"no picture")
    status = status_of(shard, "c1")
    assert dict(status.ledger.rejected) == {"truncated": 1, "not a JPEG": 1}
    assert not status.covered
    assert "rejected frames: not a JPEG" in status.reason
    assert balanced(status)


async def test_a_camera_whose_jpegs_lack_their_end_marker_is_degraded_not_dark(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    for number in range(3):
        push(shard, "c1", noisy_jpeg(number)[:-2])
        await eventually(lambda: not shard._cameras["c1"].arrivals.mailbox.ledger.waiting)
    status = status_of(shard, "c1")
    assert (status.covered, status.ledger.analysed, dict(status.ledger.rejected)) == (True, 3, {})
    assert "end marker" in status.degraded
    assert shard._cameras["c1"].latest.jpeg == noisy_jpeg(2)  # clips have complete pictures
    push(shard, "c1", noisy_jpeg(4))
    await eventually(lambda: not shard._cameras["c1"].arrivals.mailbox.ledger.waiting)
    assert not shard._cameras["c1"].status.degraded(time.time_ns() + 11 * SECOND)


async def test_a_source_that_cannot_be_opened_is_reported_and_never_covered(running):
    running.shard.apply(assignment(1, device("c1", "ftp://me:secret@cam/1")))
    status = status_of(running.shard, "c1")
    assert 'source "ftp://cam": unknown scheme' in status.reason
    assert not status.covered
    assert "secret" not in str(status)


async def test_a_camera_with_only_unknown_detectors_is_not_covered(running):
    running.shard.apply(assignment(1, device("c1", detectors=["sound"])))
    push(running.shard, "c1", noisy_jpeg())
    await eventually(lambda: running.shard._cameras["c1"].arrivals.mailbox.ledger.analysed)
    assert "lacks all of its detectors: sound" in status_of(running.shard, "c1").reason


async def test_a_picture_that_never_changes_is_a_frozen_camera(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    same = noisy_jpeg()
    camera = shard._cameras["c1"]
    now = time.time_ns()
    camera._clock = lambda: now
    for _ in range(14):
        now += SECOND // 2
        push(shard, "c1", same)
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    assert status_of(shard, "c1", now).reason.startswith("picture frozen")
    now += SECOND
    push(shard, "c1", noisy_jpeg(99))
    await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    assert status_of(shard, "c1", now).covered


async def test_a_black_picture_is_not_covered_and_not_clear(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    camera = shard._cameras["c1"]
    now = time.time_ns()
    camera._clock = lambda: now
    for number in range(4):
        now += 7 * SECOND // 10
        push(shard, "c1", noisy_jpeg(number, level=-200 if number else 120))
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    assert status_of(shard, "c1", now).reason == "picture black"


async def test_mostly_undecodable_frames_are_a_fault_although_some_are_analysed(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    for number in range(30):
        push(shard, "c1", noisy_jpeg(number) if number % 3 == 0 else b"\xff\xd8 no picture")
        await eventually(lambda: not shard._cameras["c1"].arrivals.mailbox.ledger.waiting)
    reason = status_of(shard, "c1").reason
    assert reason.startswith("broken frames: 67% of the frames of 10 s")
    assert "; latest: not a JPEG" in reason


@pytest.mark.parametrize("step", ["decode_order", "analyse_picture"])
async def test_an_error_of_a_detector_makes_only_its_camera_dark(running, monkeypatch, step):
    shard = running.shard
    shard.apply(assignment(1, device("bad"), device("good")))

    def explode(*_, **__):
        raise ZeroDivisionError("boom")

    camera = shard._cameras["bad"]
    monkeypatch.setattr(camera.analyser.pictures, step, explode)
    monkeypatch.setattr(camera.analyser, "_renew_detectors", lambda **_: None)
    for number in range(3):
        push(shard, "bad", noisy_jpeg(number))
        push(shard, "good", noisy_jpeg(number))
        await eventually(lambda: not any(each.arrivals.mailbox.ledger.waiting for each in shard._cameras.values()))
    status = status_of(shard, "bad")
    assert not status.covered
    assert status.reason == "analysis failed: ZeroDivisionError: boom"
    assert status.ledger.rejected["analysis failed"] == 3
    assert status_of(shard, "good").covered
    assert not running.reports


async def test_only_cameras_that_changed_get_a_new_source_or_a_new_detector(running):
    shard = running.shard
    hall, yard = device("hall", "http://127.0.0.1:9/a.mjpg"), device("yard", "http://127.0.0.1:9/b.mjpg")
    shard.apply(assignment(1, hall, yard))
    sources, cameras = dict(shard._sources.watched), dict(shard._cameras)
    detector = cameras["hall"].analyser.pictures
    yard.source = "http://127.0.0.1:9/c.mjpg"
    hall.zone = "lobby"
    shard.apply(assignment(2, hall, yard, deadline_s=7))
    assert shard._sources.watched["hall"] is sources["hall"]
    assert shard._sources.watched["yard"] is not sources["yard"]
    assert shard._cameras == cameras
    assert cameras["hall"].analyser.pictures is detector
    assert status_of(shard, "hall").zone == "lobby"
    hall.masks.append(Mask(x=[0, 1, 1], y=[0, 0, 1]))
    shard.apply(assignment(3, hall))
    assert cameras["hall"].analyser.pictures is not detector
    assert "yard" not in shard._sources.watched
    await eventually(sources["yard"].done)


@pytest.mark.parametrize(
    ("source", "detect", "chosen"),
    [
        ("onvif://127.0.0.1:9", "", True),
        ("http://127.0.0.1:9/a.mjpg", "onvif://127.0.0.1:9", True),
        ("onvif://127.0.0.1:9", "http://127.0.0.1:9/a.mjpg", False),
        ("http://127.0.0.1:9/a.mjpg", "", False),
    ],
)
async def test_other_rates_choose_the_stream_again_if_it_was_chosen_by_rates(running, source, detect, chosen):
    shard, gate = running.shard, device("gate", source, detect_stream=detect, fps_target=5, fps_min=1)
    shard.apply(assignment(1, gate))
    before = shard._sources.watched["gate"]
    gate.fps_min = 5
    shard.apply(assignment(2, gate))
    assert (shard._sources.watched["gate"] is not before) == chosen


async def test_counters_do_not_fall_when_a_camera_is_handed_over(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1"), device("c2")))
    for camera in ("c1", "c2"):
        push(shard, camera, noisy_jpeg())
        push(shard, camera, b"junk")
    shard.apply(assignment(2, device("c2")))
    await eventually(lambda: not shard._cameras["c2"].arrivals.mailbox.ledger.waiting)
    totals = shard._totals().ledger
    assert totals.offered == 4
    assert totals.waiting == 0
    names = {metric.name for metric in shard.metrics()}
    assert all(name.startswith(("embereye_camera_", "embereye_shard_devices_without_series")) for name in names)


async def test_load_counts_waiting_frames_and_their_age(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1"), device("c2")))
    for camera in shard._cameras.values():
        camera._submit = lambda _: None  # no turns happen
        push(shard, camera.device.id, noisy_jpeg())
    await asyncio.sleep(0.01)
    load = shard.load()
    assert load.queue_depth == 2
    assert load.oldest_age_ns >= 1_000_000
    time.sleep(2)  # noqa: ASYNC251 -- the process is suspended
    resumed, age = time.monotonic_ns(), shard.load().oldest_age_ns
    assert age < SECOND
    await eventually(lambda: shard.load().oldest_age_ns > SECOND // 2)
    assert shard.load().oldest_age_ns <= age + time.monotonic_ns() - resumed
    for camera in shard._cameras.values():
        shard._pool.submit(camera)
    await eventually(lambda: not shard._pool.is_busy)


async def test_a_simulated_fire_becomes_an_alarm_with_its_reasons_and_a_picture(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1", zone="hall")))
    loops = await asyncio.to_thread(render, 320, 240, 5, 15.0)
    await push_all(shard, "c1", [*loops.quiet[:20], *loops.growth[:75]])
    assert running.reports, "no evidence at all"
    levels = [report.level for report in running.reports]
    assert levels == sorted(levels)
    alarm = running.reports[-1]
    assert alarm.level == Level.ALARM
    assert (alarm.device, alarm.zone, alarm.kind, alarm.sense) == ("c1", "hall", Kind.FLAME, Sense.CAMERA)
    assert alarm.fleet == "default/cameras/yard"
    assert alarm.snapshot.startswith(b"\xff\xd8")
    assert len(alarm.snapshot) <= 20_000
    assert {term.name for term in alarm.why} >= {"flame.flicker", "flame.core", "flame.lasted"}
    assert len({report.episode for report in running.reports}) == 1
    status = status_of(shard, "c1")
    assert status.picture.startswith(b"\xff\xd8")
    (flame,) = [judged for judged in status.judged if judged.kind == Kind.FLAME]
    assert flame.level >= Level.PRE_ALARM
    assert flame.score > flame.threshold > 0
    assert flame.nearest.name == "flame.lasted"
    assert flame.region.area > 0


async def test_each_kind_of_sign_is_separate_evidence(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1", zone="hall")))
    flame, smoke = (Finding(kind, Level.PRE_ALARM, 0.6) for kind in (Kind.FLAME, Kind.SMOKE))
    heat = Finding(Kind.HEAT, Level.CLEAR)
    shard._report_signs(shard._cameras["c1"], Observation(time.time_ns(), (flame, smoke, heat)))
    assert [(report.kind, report.level) for report in running.reports] == [
        (Kind.FLAME, Level.PRE_ALARM),
        (Kind.SMOKE, Level.PRE_ALARM),
    ]
    assert len({report.episode for report in running.reports}) == 2


async def test_a_quiet_room_and_somebody_walking_through_raise_no_alarm(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    loops = await asyncio.to_thread(render, 320, 240, 6, 15.0)
    await push_all(shard, "c1", [*loops.quiet, *loops.walk, *loops.quiet])
    assert not running.reports
    assert status_of(shard, "c1").covered


async def test_a_blind_camera_does_not_report_the_end_of_a_fire(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    loops = await asyncio.to_thread(render, 320, 240, 5, 15.0)
    await push_all(shard, "c1", list(loops.growth[:60]))
    assert running.reports
    camera = shard._cameras["c1"]
    now = time.time_ns()
    camera._clock = lambda: now
    for number in range(60):
        now += SECOND // 5
        push(shard, "c1", noisy_jpeg(number, size=(240, 320), level=-200))
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    assert all(report.level > Level.CLEAR for report in running.reports)
    assert status_of(shard, "c1", now).reason == "picture black"


async def test_a_camera_with_a_fault_can_still_raise_an_alarm(running, monkeypatch):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    monkeypatch.setattr(shard._cameras["c1"].arrivals.quality, "fault", lambda now: "the sender's clock stopped")
    loops = await asyncio.to_thread(render, 320, 240, 5, 15.0)
    await push_all(shard, "c1", [*loops.quiet[:20], *loops.growth[:75]])
    assert not status_of(shard, "c1").covered
    assert running.reports[-1].level == Level.ALARM


async def test_a_pulled_camera_is_analysed_and_raises_an_alarm(running):
    shard, stop = running.shard, asyncio.Event()
    port = asyncio.get_running_loop().create_future()
    specs = [CameraSpec("c1", "hall"), CameraSpec("c2", "yard")]
    cameras = await prepare(specs, fps=10, size=(320, 240), seed=3, fires=[Fire(0.5, 60, zone="hall")])
    server = asyncio.ensure_future(serve_mjpeg(cameras, "127.0.0.1", 0, stop, port.set_result))
    base = f"http://127.0.0.1:{await port}"
    shard.apply(assignment(1, device("c1", f"{base}/c1.mjpg"), device("c2", f"{base}/c2.mjpg", zone="yard")))
    await eventually(lambda: all(status.covered for status in shard.devices(time.time_ns())))
    await eventually(lambda: any(report.level == Level.ALARM for report in running.reports), 30)
    assert {report.device for report in running.reports} == {"c1"}
    assert status_of(shard, "c1").state == "streaming"
    await eventually(lambda: shard.load().arrival_rate > 5)
    assert shard.load().cost_seconds > 0
    stop.set()
    await server
    await eventually(lambda: "failed" in status_of(shard, "c2").state)


async def test_draining_closes_sources_and_finishes_waiting_frames(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1"), device("c2", "http://127.0.0.1:9/a.mjpg")))
    push(shard, "c1", noisy_jpeg())
    await shard.drain()
    assert shard._cameras["c1"].arrivals.mailbox.ledger.waiting == 0
    assert not shard._sources.watched
    verdict = push(shard, "c1", noisy_jpeg())
    assert verdict.elsewhere
    assert not verdict.accepted


@pytest.mark.parametrize(
    ("camera", "taken", "elsewhere", "target"),
    [
        ("mine", True, False, ""),
        ("theirs", False, True, "10.0.0.2:50051"),
        ("pulled", False, False, ""),
        ("nobody", False, False, ""),
    ],
)
async def test_a_pushed_frame_is_accepted_refused_or_sent_to_its_owner(running, camera, taken, elsewhere, target):
    running.shard.apply(
        assignment(
            1, device("mine"), device("pulled", "http://127.0.0.1:9/a.mjpg"),
            peers=[Peer(shard="yard-1", grpc="10.0.0.2:50051")], elsewhere={"theirs": "yard-1"},
        )
    )  # fmt: skip
    verdict = push(running.shard, camera, noisy_jpeg())
    assert (verdict.accepted, verdict.elsewhere, verdict.target) == (taken, elsewhere, target)
    assert taken or verdict.reason


async def test_frames_of_a_sender_with_a_stopped_clock_get_our_time(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    times = []
    camera = shard._cameras["c1"]
    order = camera.decode_order
    camera.decode_order = lambda frame: (times.append(frame.time_ns), order(frame))[1]
    for number in range(5):
        push(shard, "c1", noisy_jpeg(number), time_ns=1234)
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    assert len(times) == 5
    assert all(later > earlier for earlier, later in pairwise(times))


async def test_a_person_can_make_the_present_scene_the_reference(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    camera = shard._cameras["c1"]
    learnt = camera.analyser.health
    shard.apply(assignment(2, device("c1", zone="yard")))
    assert camera.analyser.health is learnt
    shard.apply(assignment(3, device("c1", zone="yard", view="aimed 2026-11-21")))
    assert camera.analyser.health is not learnt
    assert camera.analyser.pictures.health is camera.analyser.health


async def test_a_radiometric_camera_raises_heat_and_shows_it_in_false_colours(running):
    shard = running.shard
    shard.apply(assignment(1, device("hot", detectors=["heat"])))
    room = ThermalRoom(3, [Fire(2, 60)])
    camera = shard._cameras["hot"]
    now = time.time_ns()
    camera._clock = lambda: now
    for number in range(9 * 20):
        now += SECOND // 9
        words = wrap(THERMAL_WIDTH, THERMAL_HEIGHT, room.frame(number / 9))
        assert push(shard, "hot", words, now).reason == ""
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
        if number == 9:
            quiet = status_of(shard, "hot", now)
    assert quiet.covered
    terms = {term.name: term.value for term in quiet.latest}
    assert 18 < terms["temperature.max"] < 30
    alarm = running.reports[-1]
    assert (alarm.kind, alarm.sense, alarm.device) == (Kind.HEAT, Sense.CAMERA, "hot")
    assert alarm.level == Level.CRITICAL
    assert {term.name for term in alarm.why} >= {"temperature.max", "spot.row", "spot.column"}
    assert alarm.snapshot.startswith(b"\xff\xd8")
    frames = camera.ring.frames()
    assert len(frames) > 20
    assert all(frame.jpeg.startswith(b"\xff\xd8") for frame in frames)


async def test_pictures_from_a_camera_that_is_to_measure_heat_are_a_fault(running):
    shard = running.shard
    shard.apply(assignment(1, device("hot", detectors=["heat"])))
    push(shard, "hot", noisy_jpeg())
    await eventually(lambda: not shard._cameras["hot"].arrivals.mailbox.ledger.waiting)
    assert "needs 16-bit frames of temperatures" in status_of(shard, "hot").reason


async def test_a_camera_whose_pictures_are_seconds_late_is_not_covered(running):
    running.shard.apply(assignment(1, device("c1", "push:")))
    camera = running.shard._cameras["c1"]
    began = time.time_ns()
    for number in range(8):
        camera.push_frame(noisy_jpeg(number), began + number * SECOND // 100, Tally())
        await asyncio.sleep(0.02)
    await eventually(lambda: status_of(running.shard, "c1").covered)
    camera.arrivals.quality.late_ns = 3 * SECOND
    assert status_of(running.shard, "c1").reason.startswith("its pictures arrive 3.0 s late")


def unread(shard):
    return next(sample.value for of in shard.metrics() for sample in of.samples if "frames_unread" in sample.name)


async def test_unread_frames_count_as_load_even_after_their_camera_left(running):
    running.shard.apply(assignment(1, device("c1", source="push:"), device("c2", source="push:")))
    backpressure = running.shard._cameras["c1"].arrivals.backpressure
    while running.shard.load().arrival_rate < 1_000:
        backpressure.unread += 100.0
        await asyncio.sleep(0.01)
    total = unread(running.shard)
    running.shard.apply(assignment(2, device("c2", source="push:")))
    assert unread(running.shard) == total


async def test_a_camera_knows_only_the_marked_places_of_its_view(running):
    shard, box, now = running.shard, (0.4, 0.5, 0.05, 0.08), time.time_ns()
    gate, door = device("gate"), device("door")
    shard.apply(assignment(1, gate, door))

    def known(camera):
        return shard._cameras[camera].analyser.usual_levels.familiarity(box, 0.004, now)

    def mark(view):
        region = Region(x=0.4, y=0.5, width=0.05, height=0.08, area=0.004, view=view)
        place = MarkedPlace(alarm="a", device="gate", kind=Kind.FLAME.wire, region=region)
        shard.note_marked(MarkedPlaces(places=[place]))

    mark(view_of(gate))
    assert (known("gate"), known("door")) == (1.0, 0.0)
    mark("before it was turned")
    assert known("gate") == 0.0
    mark(view_of(gate))
    gate.view = "2"
    shard.apply(assignment(2, gate, door))
    assert known("gate") == 0.0, "another view shows other things there"


async def test_a_mark_of_smoke_raises_the_usual_smoke_of_its_place(running):
    shard, now = running.shard, time.time_ns()
    gate = device("gate")
    shard.apply(assignment(1, gate))
    region = Region(x=0.5, y=0.5, width=0.2, height=0.2, area=0.04, view=view_of(gate))
    shard.note_marked(MarkedPlaces(places=[MarkedPlace(alarm="a", device="gate", kind=Kind.SMOKE.wire, region=region)]))
    usual = shard._cameras["gate"].analyser.usual_levels.usual_smoke(now)
    assert usual[4, 4] > 0 > usual[0, 0]
    shard.note_marked(MarkedPlaces())
    assert shard._cameras["gate"].analyser.usual_levels.usual_smoke(now).max() < 0
