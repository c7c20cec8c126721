"""A building for a console to show: devices, fires, clips."""

import asyncio
import hashlib
import io
import math
import time
from dataclasses import dataclass, field

import aiohttp
import av
import cv2
import numpy as np

from embereye.hub.candidates.keeper import Candidates
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.margins.store import MarginStore
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem, Judged, Ledger, Region, ThermalPicture
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Area, Device, Mask, Term
from embereye.wire.matroska import Muxer

TOKEN = "an-admins-token-of-forty-characters-or-so"
SENSORS, CAMERAS = "default/sensors/hall", "default/cameras/yard"
ADA = Principal("Ada", Role.OPERATOR, "Ada")
ZONES = ("kitchen", "hall", "stairs", "yard")


def picture(number: int, text: str = "", size: tuple[int, int] = (320, 240)) -> bytes:
    """Draw a JPEG with a moving object."""
    image = np.full((size[1], size[0], 3), (60, 70, 62), np.uint8)
    cv2.rectangle(image, (20, 120), (300, 235), (80, 92, 84), -1)
    cv2.circle(image, (40 + 6 * number % 240, 150), 22, (40, 150, 255), -1)
    cv2.putText(image, text or f"frame {number}", (12, 30), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (240, 240, 240), 2)
    return bytes(cv2.imencode(".jpg", image)[1])


def warm() -> ThermalPicture:
    """A thermal picture of a room with a hot object and a measuring area."""
    celsius = [
        21 + 2 * math.sin(column / 5) + 45 * math.exp(-((row - 9) ** 2 + (column - 20) ** 2) / 9)
        for row in range(24)
        for column in range(32)
    ]
    belt = Area(name="belt", limit=80, outline=Mask(x=[0.05, 0.45, 0.45, 0.05], y=[0.55, 0.55, 0.9, 0.9]))
    return ThermalPicture(celsius=celsius, areas=[belt])


@dataclass
class House:
    """A watched building; `base` is the address of its console, `control` the hub's for shards."""

    hub: Hub
    clips: ClipStore
    base: str
    session: aiohttp.ClientSession
    margins: MarginStore
    control: str = ""
    candidates: Candidates | None = None
    episodes: dict[str, str] = field(default_factory=dict)  # the latest of each device
    celsius: dict[str, float] = field(default_factory=dict)  # by sensor, if it is not the usual temperature
    dark_cameras: set[str] = field(default_factory=set)
    judged: dict[str, list[Judged]] = field(default_factory=dict)  # by camera
    _devices: tuple[list[Device], list[Device], int] = ([], [], 0)

    async def furnish(self, sensors: int = 8, cameras: int = 3, dark: int = 2) -> None:
        """Declare devices and report all but the last `dark` sensors."""
        sensors_list = [
            Device(id=f"s-{number:05}", zone=ZONES[number % 3], location=f"wall {number}") for number in range(sensors)
        ]
        cameras_list = [
            Device(id=f"cam-{number}", zone=ZONES[number % 4], location="ceiling") for number in range(cameras)
        ]
        for fleet, devices in ((SENSORS, sensors_list), (CAMERAS, cameras_list)):
            roster = FleetRoster(fleet=fleet, epoch=1, deadline_ns=5 * SECOND, devices=devices)
            await self.hub.coverage.set_roster(roster)
        self._devices = sensors_list, cameras_list, dark
        self.report()
        await self.hub.pass_time()

    async def furnish_zones(self, number: int, *, reporting: bool = False) -> None:
        """Declare a sensor in each of `number` zones; without `reporting`, none is heard."""
        devices = [Device(id=f"s-{index:05}", zone=f"room-{index:03}") for index in range(number)]
        deadline = 5 * SECOND if reporting else SECOND
        await self.hub.coverage.set_roster(FleetRoster(fleet=SENSORS, epoch=1, deadline_ns=deadline, devices=devices))
        if reporting:
            self._devices = devices, [], 0
            self.report()

    def report(self) -> None:
        """Report coverage as shards do once a second."""
        sensors_list, cameras_list, dark = self._devices
        now = time.time_ns()
        gas = Term(name="gas", value=400, unit="ppm")
        reports = [
            DeviceStatus(
                id=device.id, zone=device.zone, covered=True, state="streaming", heard_ns=now, analysed_ns=now,
                latest=[Term(name="temperature.max", value=self.celsius.get(device.id, 24.5), unit="°C"), gas],
                ledger=Ledger(offered=100, analysed=98, shed={"queue full": 2}),
                thermal=warm() if index < 2 else None,
            )
            for index, device in enumerate(sensors_list[: len(sensors_list) - dark])
        ]  # fmt: skip
        self.hub.coverage.report(Coverage(fleet=SENSORS, shard="hall-0", epoch=1, time_ns=now, devices=reports))
        reports = [
            DeviceStatus(id=device.id, zone=device.zone, covered=device.id not in self.dark_cameras,
                         reason="silent for 9.0 s, deadline 5 s" * (device.id in self.dark_cameras),
                         state="streaming", heard_ns=now, analysed_ns=now,
                         picture=picture(index, device.id), judged=self.judged.get(device.id, ()),
                         latest=[Term(name="fps", value=15, unit="1/s")])
            for index, device in enumerate(cameras_list)
        ]  # fmt: skip
        self.hub.coverage.report(Coverage(fleet=CAMERAS, shard="yard-0", epoch=1, time_ns=now, devices=reports))

    def pause(self) -> None:
        """Report nothing any more."""
        self._devices = ([], [], 0)

    async def keep_reporting(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(0.8)
            if self._devices[0]:
                self.report()

    async def burn(self, zone: str = "kitchen", value: float = 61.3, device: str = "s-00000") -> str:
        """Let a sensor measure a fire in `zone`; return the id of its alarm."""
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{device}-{now}", episode=f"{device}-{now}", fleet=SENSORS, device=device, zone=zone,
            kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
            why=[Term(name="temperature.max", value=value, threshold=57, unit="°C")],
        )  # fmt: skip
        return await self._admit(item)

    async def heat_up(self, device: str, zone: str, value: float) -> None:
        """Let a sensor measure more than at the beginning of its sign."""
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{device}-{now}", episode=self.episodes[device], fleet=SENSORS, device=device, zone=zone,
            kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
            why=[Term(name="temperature.max", value=value, threshold=57, unit="°C")],
        )  # fmt: skip
        await self._admit(item)

    async def cool_down(self, device: str, zone: str) -> None:
        """Let a sensor measure less than its limit but more than its usual level: the sign has not ended yet."""
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{device}-{now}", episode=self.episodes[device], fleet=SENSORS, device=device, zone=zone,
            kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
            why=[Term(name="temperature.max", value=34, threshold=47, unit="°C"),
                 Term(name="temperature.over_normal", value=11.2, threshold=10, unit="K")],
        )  # fmt: skip
        await self._admit(item)

    async def burn_before(self, camera: str, zone: str) -> str:
        """Let a camera see a fire, with a clip from four seconds before to four seconds after."""
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{camera}-{now}", episode=f"{camera}-{now}", fleet=CAMERAS, device=camera, zone=zone,
            kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
            score=0.93, snapshot=picture(5, camera), region=Region(x=0.04, y=0.51, width=0.18, height=0.23, area=0.02),
            why=[Term(name="flame.lasted", value=1.6, threshold=1.5, unit="s")],
        )  # fmt: skip
        alarm = await self._admit(item)
        await self.record(camera, zone, item.episode, now - 4 * SECOND)
        return alarm

    async def suspect(self, camera: str, zone: str) -> str:
        """Let a camera see what may be a fire; shards send no picture with such a sign."""
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{camera}-{now}", episode=f"{camera}-{now}", fleet=CAMERAS, device=camera, zone=zone,
            kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.PRE_ALARM.wire, since_ns=now, until_ns=now,
        )  # fmt: skip
        return await self._admit(item)

    async def lose_sight(self, camera: str, zone: str) -> None:
        """Continue a camera's sign without measured values."""
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{camera}-{now}", episode=self.episodes[camera], fleet=CAMERAS, device=camera, zone=zone,
            kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
        )  # fmt: skip
        await self._admit(item)

    async def record(self, camera: str, zone: str, episode: str, from_ns: int, fleet: str = CAMERAS) -> None:
        """Store a clip of eight seconds."""
        times = [from_ns + number * SECOND // 5 for number in range(40)]
        muxer = Muxer(320, 240, camera, from_ns)
        data = muxer.begin() + b"".join(muxer.frame(picture(n), at) for n, at in enumerate(times)) + muxer.finish()[0]
        clip = Clip(
            media=Clip.MEDIA_CLIP, fleet=fleet, device=camera, zone=zone, kind=Kind.FLAME.wire, episode=episode,
            from_ns=from_ns, until_ns=times[-1], frames=40, width=320, height=240,
        )  # fmt: skip
        await self._store(clip, data)

    async def film(self, camera: str, zone: str, size: tuple[int, int] = (320, 240)) -> str:
        """Store two seconds of H.264 for the latest episode of `camera`; return the address."""
        file, now, (width, height) = io.BytesIO(), time.time_ns(), size
        with av.open(file, "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=10, options={"bf": "0"})
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            for number in range(20):
                pixels = np.full((height, width, 3), 10 * number, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="bgr24")))
            container.mux(stream.encode())
        clip = Clip(
            media=Clip.MEDIA_VIDEO, fleet=CAMERAS, device=camera, zone=zone, kind=Kind.FLAME.wire,
            episode=self.episodes[camera], from_ns=now - 2 * SECOND, until_ns=now, frames=20, width=width,
            height=height,
        )  # fmt: skip
        await self._store(clip, file.getvalue())
        return f"/v1/clips/{clip.sha256}.mp4"

    async def _store(self, clip: Clip, data: bytes) -> None:
        clip.sha256, clip.bytes = hashlib.sha256(data).hexdigest(), len(data)
        await self.clips.write(clip, 0, data)
        await self.clips.complete(clip)

    async def _admit(self, item: EvidenceItem) -> str:
        self.episodes[item.device] = item.episode
        self.hub.inbox.admit(item, lambda _: None)
        assert await self.hub.committer.flush(10)
        (alarm,) = [zone.alarm for zone in self.hub.zones.messages() if zone.name == item.zone]
        return str(alarm)
