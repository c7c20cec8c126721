"""`embereye explain alarm ID`: how an alarm came about, and whether it would again."""

import json
import re
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from embereye.levels import Kind, Level, ZoneState
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.units import SECOND, counted
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.clips_pb2 import Clip
from embereye.v1.types_pb2 import Term
from embereye.zone.sentences import quantity, sign
from embereye.zone.state import ZoneMachine
from embereye_cli.hub.http import HttpHub, add_console_options

if TYPE_CHECKING:
    from embereye.camera.replay import Detection

SHOWS = "`embereye alarms --json history` has their ids"
SAME = "as it was decided then"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("alarm", metavar="ID", help="the alarm's id, as `embereye alarms --json history` has it")
    add_console_options(parser)
    parser.add_argument("--replay", action="store_true",
                        help="decide once more, with this version: the zone on the signs that were told, sensors' "
                        "thresholds on the lines that were kept, by their settings then, and cameras' detectors, with "
                        "the settings of a fleet that sets none, on the clips")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    """Explain; 1 where --replay decides otherwise."""
    if not re.fullmatch("[0-9a-f]{16}", arguments.alarm):
        raise UserError(f'"{arguments.alarm}" is no id of an alarm, such as 3a55901d2d5fdabd: {SHOWS}')
    hub = HttpHub(arguments.console, arguments.token)
    path = f"/v1/alarms/{arguments.alarm}"
    alarm = hub.read(path, "events", shows=SHOWS)
    kept = hub.read(f"{path}/clips", "clips")
    clips, lines = kept["clips"], kept.get("lines", [])
    events = [json_format.ParseDict(event, AlarmEvent(), ignore_unknown_fields=True) for event in alarm["events"]]
    verdicts = list(_replayed(hub, events, [*lines, *clips])) if arguments.replay else []
    if arguments.json:
        replayed = [{"of": verdict.of, "same": verdict.same, "why": verdict.why} for verdict in verdicts]
        print(json.dumps(alarm | {"clips": clips, "lines": lines, "replay": replayed}, ensure_ascii=False))
    else:
        for line in (*sentences(alarm, events, [*lines, *clips]), *_told(verdicts)):
            print(visible(line))
    sys.stdout.flush()
    return 0 if all(verdict.same for verdict in verdicts) else 1


# What happened


def sentences(alarm: dict[str, Any], events: list[AlarmEvent], clips: list[dict[str, Any]]) -> Iterator[str]:
    """The chain of an alarm in order of time: what was seen and when, what was decided, kept and done."""
    worst = ZoneState(AlarmEvent(state=alarm["worst"]).state).word
    ended = f"until {_clock(int(alarm['endedNs']))}" if alarm["endedNs"] != "0" else "still open"
    where = f"{alarm['namespace']}/{alarm['zone']}"
    yield f"{alarm['alarm']}: {worst} in {where} from {_clock(int(alarm['beganNs']))}, {ended}"
    if mark := alarm.get("falseAlarm"):
        yield f"  marked as false by {mark['who']}: {mark['reason']}"
    steps = sorted({*_seen(events), *_decided(events), *_kept(clips)})
    began = steps[0][0] if steps else 0
    for at, stage, words in steps:
        yield f"  {_clock(at)} {(at - began) / SECOND:+11.3f} s  {stage:<9} {words}"
    if decided := [event.version for event in events if event.version]:
        yield f"  decided by EmberEye {decided[0]}; this is {version('embereye')}"


def _seen(events: list[AlarmEvent]) -> Iterator[tuple[int, str, str]]:
    """When each sign was first seen by its shard, and what it was when people first heard of it."""
    known = set[tuple[str, str]]()
    for event in events:
        for item in event.contributions:
            if (item.device, item.episode) in known:
                continue
            known.add((item.device, item.episode))
            yield item.since_ns, "first", f"{Kind(item.kind).word} begins at {item.device}, says its shard"
            yield item.until_ns, "measured", sign(item) + (f", {item.note}" if item.note else "")
            if item.why:
                yield item.until_ns, "terms", ", ".join(map(_term, item.why))


def _term(term: Term) -> str:
    limit = f" of {quantity(term.threshold, term.unit)}" if term.threshold else ""
    return f"{term.name} {quantity(term.value, term.unit)}{limit}"


def _decided(events: list[AlarmEvent]) -> Iterator[tuple[int, str, str]]:
    for event in events:
        stage = "person" if event.who else "decided"
        state = f"{ZoneState(event.state).word}: " if event.type == AlarmEvent.TYPE_STATE else ""
        yield event.time_ns, stage, f"{state}{event.why}"


def _kept(clips: list[dict[str, Any]]) -> Iterator[tuple[int, str, str]]:
    for clip in clips:
        stage = "lines" if clip["media"] == "MEDIA_LINES" else "pictures"
        yield int(clip["untilNs"]), stage, f"of {clip['device']} from {_clock(int(clip['fromNs']))}: {clip['url']}"


def _clock(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ns // SECOND)) + f".{time_ns % SECOND // 1_000_000:03}Z"


# Whether it would come about again


@dataclass(frozen=True)
class Verdict:
    """What came of deciding once more."""

    of: str
    same: bool
    why: str


def _told(verdicts: list[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        yield f"  replayed, {verdict.of}: {SAME if verdict.same else 'OTHERWISE than then'}: {verdict.why}"


def replay_zone(events: list[AlarmEvent]) -> Verdict:
    """Give the signs that `events` tell of to a zone of this version; the same is getting as far as then."""
    if not events:
        raise UserError("nothing is kept of this alarm")
    machine = ZoneMachine(events[0].namespace, events[0].zone)
    worst, then, why = ZoneState.NORMAL, ZoneState.NORMAL, "no sign was enough"
    for event in events:
        if ZoneState(event.state) in {ZoneState.PRE_ALARM, ZoneState.ALARM}:
            then = max(then, ZoneState(event.state), key=lambda state: state.severity)
        for item in event.contributions:
            for step in machine.add_evidence(item, event.time_ns):
                if ZoneState(step.state).severity > worst.severity:
                    worst, why = ZoneState(step.state), step.why
    return Verdict("the zone on the signs that were told", worst is then, f"{worst.word}, {why}")


def _replayed(hub: HttpHub, events: list[AlarmEvent], clips: list[dict[str, Any]]) -> Iterator[Verdict]:
    yield replay_zone(events)
    for listed in clips:
        clip = json_format.ParseDict(listed, Clip(), ignore_unknown_fields=True)
        if clip.stored_by:
            continue  # no shard judged it
        if clip.media == Clip.MEDIA_LINES:
            yield replay_lines(clip, hub.fetch(listed["url"]))
        elif clip.media != Clip.MEDIA_STILL:
            yield replay_clip(clip, hub.fetch(listed["url"]), events)


def replay_lines(clip: Clip, content: bytes) -> Verdict:
    """Show what a sensor sent to this version, as its shard does; the same is reaching the level that it reported."""
    # They load numpy, which nothing else here has a use for.
    from embereye.sensor.recording import RecordingError, read_recording
    from embereye.sensor.replay import LineReplay

    kind = Kind(clip.kind)
    try:
        judged, moments = read_recording(content)
        replay = LineReplay(judged)
        for moment in moments:
            replay.show(moment)
    except RecordingError as error:
        raise UserError(f"what was kept of {clip.device} cannot be replayed: {error}") from error
    now, then = replay.level(kind), judged.level
    words = f"{kind.word} {now.word} now, {then.word} then, by EmberEye {judged.version}"
    shown = f"{counted(replay.readings, 'reading')} and {counted(replay.frames, 'frame')}"
    return Verdict(f"the thresholds on {shown} of {clip.device}", now == then, words)


def replay_clip(clip: Clip, content: bytes, events: list[AlarmEvent]) -> Verdict:
    """Show the frames of `clip` to the detectors of this version, as a shard does."""
    # They load OpenCV, which nothing else here has a use for.
    from embereye.camera.sources.declared import SourceError
    from embereye.wire.matroska import MatroskaError

    kind = Kind(clip.kind)
    told = [item for event in events for item in event.contributions if item.episode == clip.episode]
    then = Level(max((item.level for item in told), default=Level.CLEAR))
    try:
        found = _detections(clip, content)
    except (MatroskaError, SourceError) as error:
        raise UserError(f"the clip of {clip.device} cannot be replayed: {error}") from error
    now = max((seen.level for seen in found if seen.kind is kind), default=Level.CLEAR)
    same = (now >= Level.ALARM) == (then >= Level.ALARM)
    words = f"{kind.word} {now.name.lower()} now, {then.name.lower()} then"
    return Verdict(f"the detectors on {counted(clip.frames, 'frame')} of {clip.device}", same, words)


def _detections(clip: Clip, content: bytes) -> "list[Detection]":
    from embereye.camera.recording import Settings, watch
    from embereye.camera.replay import Replay
    from embereye.wire.matroska import frames
    from embereye_operator.api.cameras import CameraFleetSpec
    from embereye_operator.decide.placement.assignments import build_camera_settings

    settings = build_camera_settings(CameraFleetSpec())
    if clip.media == Clip.MEDIA_CLIP:
        replay = Replay(settings)
        for still in frames(content):
            replay.show(still.jpeg, (still.time_ns - clip.from_ns) / SECOND)
        return replay.detections
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        path.write_bytes(content)
        return watch(str(path), Settings(settings)).detections
