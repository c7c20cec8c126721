"""Playback of a recording to one camera, as in a shard: its detections and the alarms of its zone.

It uses a shard's `CameraDevice`, `Episodes` and `ZoneMachine`, with the recording's time as their clock. `show` offers
a frame to the camera. The camera submits itself for a turn, and `_run_turn` decodes and analyses the frame in the same
call, in place of the pool. Evidence and alarms of the frame are collected before `show` returns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from embereye.camera.decode.image import Decoded, add_logits, decode_frame
from embereye.camera.decode.shipped import load_network
from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.camera.device.signs import signs_of
from embereye.camera.margins import margin_of
from embereye.camera.scheduling.mailbox import Frame, Picture
from embereye.camera.scheduling.turn import Turn
from embereye.detect.vision.observation import Observation
from embereye.levels import Kind, Level, ZoneState
from embereye.margins import Margin
from embereye.shard.evidence.episodes import Episodes
from embereye.units import SECOND, Box
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device, Mask, Term
from embereye.zone.state import ZoneMachine

MARGIN_SECONDS = 5.0
START_NS = 1_700_000_000 * SECOND  # time of a recording's first frame; the value does not matter
FLEET = "default/cameras/recording"


@dataclass
class Detection:
    """One uninterrupted sign of one kind, with the terms of its strongest moment."""

    kind: Kind
    start: float  # seconds from the first frame
    level: Level
    score: float
    box: Box | None
    why: list[Term]


@dataclass(frozen=True)
class Alarm:
    """The zone's alarm, or another kind at alarm level that joined it."""

    time: float  # seconds from the first frame
    kind: Kind
    why: str


@dataclass(frozen=True)
class Fault:
    """A time at which the camera could not see, and why."""

    start: float  # seconds from the first frame
    reason: str


@dataclass
class Replay:
    """One camera and its zone, with the recording's time as clock."""

    settings: CameraSettings
    fps_target: float = 0.0  # frames/s above which frames are shed while no fire is suspected; 0: none
    analysed: Callable[[CameraDevice, Frame, Decoded | None], None] = lambda *_: None  # receives each analysed frame
    masks: Sequence[Mask] = ()  # regions of the picture that are not analysed
    detections: list[Detection] = field(default_factory=list, init=False)
    alarms: list[Alarm] = field(default_factory=list, init=False)
    faults: list[Fault] = field(default_factory=list, init=False)
    margins: list[Margin] = field(default_factory=list, init=False)  # of each 5 s, as a shard notes them
    seconds: float = field(default=0.0, init=False)  # of the latest frame
    frames: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        device = Device(id="camera", zone="recording", fps_target=self.fps_target, masks=self.masks)
        links = ShardLinks(
            submit=self._run_turn, report=self._observe, analysed=self.analysed, clock=lambda: self._now_ns
        )
        self.camera = CameraDevice(device, self.settings, links)
        self._episodes = Episodes(FLEET)
        self._zone = ZoneMachine("default", "recording")
        self._by_episode: dict[str, Detection] = {}
        self._faulty = False
        self._network = load_network()
        self._margin_due = 0.0  # seconds from the first frame

    @property
    def _now_ns(self) -> int:
        return START_NS + round(self.seconds * SECOND)

    def show(self, data: bytes, seconds: float, lost: tuple[Box, ...] = ()) -> Observation | None:
        """Show one compressed frame, taken `seconds` after the first. Returns the latest observation, or None."""
        self.seconds = seconds
        self.frames += 1
        self.camera.offer_frame(data, self._now_ns, lost)
        reason = self.camera.reason(self._now_ns)
        if reason and not self._faulty:
            self.faults.append(Fault(seconds, reason))
        self._faulty = bool(reason)
        if seconds >= self._margin_due:
            self.end_margin()
        return self.camera.analyser.observation

    def end_margin(self) -> None:
        """Note the margin up to the latest frame."""
        self._margin_due = self.seconds + MARGIN_SECONDS
        if margin := margin_of(self.camera, self._now_ns):
            self.margins.append(margin)

    def _run_turn(self, camera: CameraDevice) -> None:
        """Decode and analyse a frame at once, as the pool and its processes do in a shard."""
        frame = camera.next_frame()
        assert frame
        turn = Turn(frame, waited=0.0, began=self.seconds)
        try:
            if order := camera.decode_order(frame):
                assert isinstance(frame, Picture)
                header = frame.header
                turn.result = add_logits(
                    decode_frame(order, frame.data, header.width, header.height), order, self._network
                )
            else:
                turn.result = camera.analyse_on_thread(frame)
        except Exception as error:
            turn.result = error
        camera.finish_turn(turn)

    def _observe(self, camera: CameraDevice, seen: Observation) -> None:
        for finding, sign in zip(seen.findings, signs_of(camera, seen), strict=True):
            item = self._episodes.observe(sign, self._now_ns)
            if item is None:
                continue
            self._note_detection(item, finding.box)
            self._note_alarms(self._zone.add_evidence(item, self._now_ns), item)

    def _note_detection(self, item: EvidenceItem, box: Box | None) -> None:
        known = self._by_episode.get(item.episode)
        if known is None:
            start = (item.since_ns - START_NS) / SECOND
            known = Detection(Kind(item.kind), start, Level(item.level), item.score, box, list(item.why))
            self._by_episode[item.episode] = known
            self.detections.append(known)
        elif (item.level, item.score) > (known.level, known.score):
            known.level, known.score, known.box, known.why = Level(item.level), item.score, box, list(item.why)

    def _note_alarms(self, events: Iterable[AlarmEvent], item: EvidenceItem) -> None:
        for event in events:
            raised = event.type == AlarmEvent.TYPE_STATE and ZoneState(event.state) is ZoneState.ALARM
            joined = event.type == AlarmEvent.TYPE_EVIDENCE and ZoneState(event.state) is ZoneState.ALARM
            if raised or (joined and item.level >= Level.ALARM):
                self.alarms.append(Alarm(self.seconds, Kind(item.kind), event.why))
