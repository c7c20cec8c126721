"""Show how an alarm came about, and replay the decision with this version."""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from embereye.levels import Kind, Level, ZoneState
from embereye.process.lifecycle import NotFoundError, UserError
from embereye.units import SECOND, counted
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.clips_pb2 import Clip
from embereye.v1.shard_pb2 import CameraSettings, SensorSettings
from embereye.v1.types_pb2 import Term
from embereye.zone.sentences import quantity, sign
from embereye.zone.state import ZoneMachine
from embereye_cli.explain.masks import CameraMasks, MasksOf, masks_at_hub, unknown_masks
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.hub.zones import ALARM_ID
from embereye_cli.terminal import local_time, print_answer

if TYPE_CHECKING:
    from embereye.camera.replay import Detection

LISTER = "`embereye alarms --json history` has their ids"
SAME = "same decision as then"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("alarm", metavar="ID", help="the alarm's id, as `embereye alarms --json history` has it")
    add_console_options(parser)
    parser.add_argument("--replay", action="store_true",
                        help="repeat the decisions with this version: of the zone on the reported signs, of sensors' "
                        "thresholds on the recorded lines, and of cameras' detectors on the clips")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    """Explain; return 1 if --replay decides otherwise."""
    check_alarm_id(arguments.alarm)
    hub = HttpHub(console_connection(arguments))
    path = f"/v1/alarms/{arguments.alarm}"
    alarm = hub.read(path, "events", lister=LISTER)
    recorded = hub.read(f"{path}/clips", "clips")
    clips, lines = recorded["clips"], recorded.get("lines", [])
    events = events_of(alarm)
    verdicts: list[Verdict] = []
    if arguments.replay:
        verdicts = list(replay_alarm(events, [*lines, *clips], hub.fetch, masks_of=masks_at_hub(hub)))
    replayed = [{"of": verdict.subject, "same": verdict.same, "why": verdict.why} for verdict in verdicts]
    text = chain(sentences(alarm, events, [*lines, *clips]), _verdict_lines(verdicts))
    print_answer(alarm | {"clips": clips, "lines": lines, "replay": replayed}, text, as_json=arguments.json)
    sys.stdout.flush()
    return 0 if all(verdict.same for verdict in verdicts) else 1


def check_alarm_id(text: str) -> None:
    """Raise NotFoundError if `text` does not have the form of an alarm's id."""
    if not ALARM_ID.fullmatch(text):
        raise NotFoundError(f'"{text}" is not the id of an alarm, such as 3a55901d2d5fdabd: {LISTER}')


def events_of(alarm: dict[str, Any]) -> list[AlarmEvent]:
    """The events in the hub's answer on one alarm."""
    return [json_format.ParseDict(event, AlarmEvent(), ignore_unknown_fields=True) for event in alarm["events"]]


# What happened


def sentences(alarm: dict[str, Any], events: list[AlarmEvent], clips: list[dict[str, Any]]) -> Iterator[str]:
    """The history of an alarm in order of time: signs, decisions, recordings and actions of people."""
    worst = ZoneState(AlarmEvent(state=alarm["worst"]).state).word
    ended = f"until {_time(int(alarm['endedNs']))}" if alarm["endedNs"] != "0" else "still open"
    where = f"{alarm['namespace']}/{alarm['zone']}"
    yield f"{alarm['alarm']}: {worst} in {where} from {_time(int(alarm['beganNs']))}, {ended}"
    if mark := alarm.get("falseAlarm"):
        yield f"  marked as false by {mark['who']}: {mark['reason']}"
    steps = sorted({*_signs(events), *_decisions(events), *_recordings(clips)})
    began = steps[0][0] if steps else 0
    for at, stage, words in steps:
        yield f"  {_time(at)} {(at - began) / SECOND:+11.3f} s  {stage:<9} {words}"
    if decided := [event.version for event in events if event.version]:
        yield f"  decided by EmberEye {decided[0]}; this is {version('embereye')}"


def _signs(events: list[AlarmEvent]) -> Iterator[tuple[int, str, str]]:
    """Yield when each sign began at its shard, and its strength when people first heard of it."""
    known = set[tuple[str, str]]()
    for event in events:
        for item in event.contributions:
            if (item.device, item.episode) in known:
                continue
            known.add((item.device, item.episode))
            yield item.since_ns, "first", f"{Kind(item.kind).word} begins at {item.device}, says its shard"
            yield item.until_ns, "measured", sign(item) + (f", {item.note}" if item.note else "")
            if item.why:
                yield item.until_ns, "terms", ", ".join(map(term_words, item.why))


def term_words(term: Term) -> str:
    """A term and its limit in words: "temperature.max 61.3 °C of 57 °C"."""
    limit = f" of {quantity(term.threshold, term.unit)}" if term.threshold else ""
    return f"{term.name} {quantity(term.value, term.unit)}{limit}"


def _decisions(events: list[AlarmEvent]) -> Iterator[tuple[int, str, str]]:
    for event in events:
        stage = "person" if event.who else "decided"
        state = f"{ZoneState(event.state).word}: " if event.type == AlarmEvent.TYPE_STATE else ""
        yield event.time_ns, stage, f"{state}{event.why}"


def _recordings(clips: list[dict[str, Any]]) -> Iterator[tuple[int, str, str]]:
    for clip in clips:
        stage = "lines" if clip["media"] == "MEDIA_LINES" else "pictures"
        yield int(clip["untilNs"]), stage, f"of {clip['device']} from {_time(int(clip['fromNs']))}: {clip['url']}"


def _time(time_ns: int) -> str:
    return local_time(time_ns, timespec="milliseconds")


# Replay


@dataclass(frozen=True)
class Verdict:
    """The result of deciding once more."""

    subject: str  # what was decided again
    same: bool
    why: str


def _verdict_lines(verdicts: list[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        yield f"  replayed, {verdict.subject}: {SAME if verdict.same else 'OTHER decision than then'}: {verdict.why}"


def replay_zone(events: list[AlarmEvent]) -> Verdict:
    """Give the signs in `events` to a zone of this version; the decision is the same if it gets as far as then."""
    if not events:
        raise NotFoundError("no event of this alarm is stored")
    machine = ZoneMachine(events[0].namespace, events[0].zone)
    worst, then, why = ZoneState.NORMAL, ZoneState.NORMAL, "no sign was enough"
    for event in events:
        if ZoneState(event.state) in {ZoneState.PRE_ALARM, ZoneState.ALARM}:
            then = max(then, ZoneState(event.state), key=lambda state: state.severity)
        for item in event.contributions:
            for step in machine.add_evidence(item, event.time_ns):
                if ZoneState(step.state).severity > worst.severity:
                    worst, why = ZoneState(step.state), step.why
    return Verdict("the zone on the reported signs", worst is then, f"{worst.word}, {why}")


def replay_alarm(
    events: list[AlarmEvent], clips: list[dict[str, Any]], fetch: Callable[[str], bytes],
    settings: Mapping[str, SensorSettings | CameraSettings] = MappingProxyType({}),
    masks_of: MasksOf = unknown_masks,
) -> Iterator[Verdict]:  # fmt: skip
    """Decide an alarm again from its events and recordings; `fetch` returns the content at a recording's URL.

    `settings` replace those of the recording, and the cameras' defaults, by fleet. `masks_of` finds cameras' masks.
    """
    yield replay_zone(events)
    for listed in clips:
        clip = json_format.ParseDict(listed, Clip(), ignore_unknown_fields=True)
        if clip.stored_by:
            continue  # a person uploaded it: no shard judged it
        if clip.media == Clip.MEDIA_LINES:
            yield replay_lines(clip, fetch(listed["url"]), settings.get(clip.fleet))
        elif clip.media != Clip.MEDIA_STILL:
            yield replay_clip(clip, fetch(listed["url"]), events, settings.get(clip.fleet), masks_of(listed))


def replay_lines(clip: Clip, content: bytes, settings: SensorSettings | CameraSettings | None = None) -> Verdict:
    """Give the recorded lines of a sensor to this version; the decision is the same if it reaches that level.

    None: with the recorded settings.
    """
    # They load numpy, which nothing else here needs.
    from embereye.sensor.recording import RecordingError, read_recording
    from embereye.sensor.replay import LineReplay

    kind = Kind(clip.kind)
    try:
        judged, moments = read_recording(content)
        if isinstance(settings, SensorSettings):
            judged = replace(judged, settings=settings)
        replay = LineReplay(judged)
        for moment in moments:
            replay.show(moment)
    except RecordingError as error:
        raise UserError(f"the recorded lines of {clip.device} cannot be replayed: {error}") from error
    now, then = replay.level(kind), judged.level
    words = f"{kind.word} {now.word} now, {then.word} then, by EmberEye {judged.version}"
    reports = [report for report in replay.reports if report.kind == kind.wire]
    strongest = max(reports, key=lambda report: report.level, default=None)
    words += f": {', '.join(map(term_words, strongest.why))}" if strongest and strongest.why else ""
    shown = f"{counted(replay.readings, 'reading')} and {counted(replay.frames, 'frame')}"
    return Verdict(f"the thresholds on {shown} of {clip.device}", now == then, words)


def replay_clip(
    clip: Clip, content: bytes, events: list[AlarmEvent], settings: SensorSettings | CameraSettings | None = None,
    masks: CameraMasks | None = None,
) -> Verdict:  # fmt: skip
    """Give the frames of `clip` to the detectors of this version, as a shard does.

    Without `settings`, with the defaults; without `masks`, to all of the picture.
    """
    # They load OpenCV, which nothing else here needs.
    from embereye.camera.sources.declared import SourceError
    from embereye.wire.matroska import MatroskaError

    kind = Kind(clip.kind)
    signs = [item for event in events for item in event.contributions if item.episode == clip.episode]
    then = Level(max((item.level for item in signs), default=Level.CLEAR))
    try:
        detections = _detections(clip, content, settings, masks)
    except (MatroskaError, SourceError) as error:
        raise UserError(f"the clip of {clip.device} cannot be replayed: {error}") from error
    of_kind = [detection for detection in detections if detection.kind is kind]
    strongest = max(of_kind, key=lambda detection: (detection.level, detection.score), default=None)
    now = strongest.level if strongest else Level.CLEAR
    same = (now >= Level.ALARM) == (then >= Level.ALARM)
    words = f"{kind.word} {now.name.lower()} now, {then.name.lower()} then"
    words += f": {', '.join(map(term_words, strongest.why))}" if strongest and strongest.why else ""
    known = masks.words if masks else "its masks are not known"
    return Verdict(f"the detectors on {counted(clip.frames, 'frame')} of {clip.device} ({known})", same, words)


def _detections(
    clip: Clip, content: bytes, settings: SensorSettings | CameraSettings | None, masks: CameraMasks | None
) -> "list[Detection]":
    from embereye.camera.recording import Settings, watch
    from embereye.camera.replay import Replay
    from embereye.wire.matroska import frames
    from embereye_operator.api.cameras import CameraFleetSpec
    from embereye_operator.decide.placement.assignments import build_camera_settings

    if not isinstance(settings, CameraSettings):
        settings = build_camera_settings(CameraFleetSpec())
    outlines = masks.outlines if masks else ()
    if clip.media == Clip.MEDIA_CLIP:
        replay = Replay(settings, masks=outlines)
        for still in frames(content):
            replay.show(still.jpeg, (still.time_ns - clip.from_ns) / SECOND)
        return replay.detections
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        path.write_bytes(content)
        return watch(str(path), Settings(settings, masks=outlines)).detections
