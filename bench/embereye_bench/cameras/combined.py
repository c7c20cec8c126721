"""Measure everything at once: sensors with thermal frames, MJPEG cameras and H.264 cameras, on one machine.

No other program does all of this, so there is no baseline: the result says if alarms are late and ledgers exact.
"""

import contextlib
import random
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.camera.scheduling.video_mailbox import VIDEO_SLOTS
from embereye.process.addresses import free_ports
from embereye.v1.evidence_pb2 import Ledger
from embereye_bench.cameras.jpeg import (
    DELAY,
    RATE,
    REJECTED,
    SHED,
    WARM_UP,
    assignment,
    buckets_between,
    quantile,
)
from embereye_bench.cameras.video import RATE as VIDEO_RATE
from embereye_bench.cameras.video import small_films
from embereye_bench.films import draw
from embereye_bench.process import CameraShardProcess, Sender
from embereye_bench.report import Result, Scale
from embereye_bench.sensors.load import HOST, Server, alarming_line, close, connect, frame_lines, paced, reading_line

SENSORS, SENSOR_RATE = 100, 10.0  # each sends a reading and a thermal frame, 10 times a second
CAMERAS = 50  # of each kind
LATE_SECONDS = 0.15  # from the sign to its evidence at the hub
BURN_SECONDS = 12.0  # within which a camera whose film burns must raise its alarm; flames need some time
CROSSINGS = 20  # additional sensors whose smoke starts during the measurement


@dataclass
class _Sensors:
    """A sensor shard and its devices: first SENSORS quiet ones, then CROSSINGS whose smoke starts."""

    server: Server
    sockets: Sequence[socket.socket]
    lines: Sequence[Sequence[bytes]]
    sent: int  # lines with a calibration, a reading or a frame
    crossed: dict[str, float] | None = None  # by device: time of its smoke, seconds since the Unix epoch

    def send(self, seconds: float) -> None:
        """Send for `seconds`, with smoke of one more device at even intervals."""
        self.crossed = {}
        until = time.monotonic() + seconds
        for number in range(SENSORS, SENSORS + CROSSINGS):
            self.sent += 2 * paced(self.sockets[:SENSORS], self.lines, SENSOR_RATE, seconds / CROSSINGS)
            device = f"device-{number}"
            self.crossed[device] = time.time()
            self.sockets[number].send(alarming_line(device))
            self.sent += 1
        time.sleep(max(0.0, until - time.monotonic()))


@contextlib.contextmanager
def _sensors(hub: str) -> Iterator[_Sensors]:
    dice, count = random.Random(5), SENSORS + CROSSINGS
    with Server("shard", count, hub) as server:
        sockets = connect(server.ports["tcp"], count)
        lines, introduced = [], 0
        for number in range(SENSORS):
            calibration, frames = frame_lines(number, 8)
            sockets[number].sendall(calibration)
            introduced += 1
            device_frames = frames.split(b"!")[:-1]
            lines.append([reading_line(f"device-{number}", dice) + frame + b"!" for frame in device_frames])
        sensors = _Sensors(server, sockets, lines, introduced)
        for number in range(SENSORS, count):
            sockets[number].sendall(reading_line(f"device-{number}", dice))
            sensors.sent += 1
        yield sensors
        close(sockets)


def combined(scale: Scale) -> Result:
    """Measure 100 sensors at 10 Hz with thermal frames, 50 MJPEG and 50 H.264 cameras at once."""
    films, videos = draw(), small_films()
    seconds = max(BURN_SECONDS + 3.0, scale.rounds * scale.seconds)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder, hubs = Path(name), [f"{HOST}:{port}" for port in free_ports(2)]
        films.save(folder / "films")
        videos.save(folder / "videos")
        common = ["--cameras", str(CAMERAS)]
        mjpeg = stack.enter_context(
            Sender("mjpeg", "--hub", hubs[0], "--films", f"{folder}/films", "--rate", str(RATE), *common)
        )
        rtsp = stack.enter_context(
            Sender("rtsp", "--hub", hubs[1], "--films", f"{folder}/videos", "--rate", str(VIDEO_RATE), *common)
        )
        sources = [f"http://{HOST}:{mjpeg.introduction['port']}/{number}" for number in range(CAMERAS)]
        sources += [f"rtsp://{HOST}:{rtsp.introduction['port']}/{number}" for number in range(CAMERAS)]
        shard = stack.enter_context(CameraShardProcess(assignment(sources), folder, hubs[0]))
        shard.wait_ready(len(sources))
        sensors = stack.enter_context(_sensors(hubs[0]))
        deadline = time.monotonic() + 20.0
        while time.monotonic() < deadline and sum(count > 0 for count in shard.analysed().values()) < CAMERAS:
            time.sleep(0.2)
        time.sleep(3 * WARM_UP)
        before, cpu = shard.counters(), sensors.server.cpu()
        sending = threading.Thread(target=sensors.send, args=(seconds,))
        sending.start()
        mjpeg.command("start")  # a third of its films burn
        sending.join()
        after, sensor_cpu = shard.counters(), sensors.server.cpu() - cpu
        mjpeg.command("stop")
        time.sleep(WARM_UP)
        came = mjpeg.command("came")["came"]
        counts, ledgers = sensors.server.idle_counters(1.0), shard.ledgers()
    elapsed = after.at - before.at
    delays = _delays(sensors.crossed or {}, came, [f"camera-{n}" for n in range(CAMERAS) if films.film_of(n) == 2])
    late = sum(delay > LATE_SECONDS for delay in delays)
    exact = all(map(_exact, ledgers)) and counts["waiting"] == 0 and counts["offered"] == sensors.sent
    dropped = sum(after.total(name) - before.total(name) for name in (SHED, REJECTED))
    p99 = 1e3 * quantile(buckets_between(before, after, DELAY), 0.99)
    cores = (after.cpu - before.cpu + sensor_cpu) / elapsed
    unit = (
        f"alarms late or missing of {len(delays)}, the slowest {1e3 * min(max(delays), BURN_SECONDS):.0f} ms; ledgers"
        f" {'exact' if exact else 'NOT exact'}; {cores:.2f} cores, {dropped:.0f} pictures dropped, p99 {p99:.0f} ms"
    )
    return Result("combined", late, unit, 0.0, 0.0, f"0 later than {1e3 * LATE_SECONDS:.0f} ms, ledgers exact",
                  late == 0 and exact)  # fmt: skip


def _delays(crossed: dict[str, float], came: dict[str, list[float]], burning: Sequence[str]) -> list[float]:
    """Seconds from each sign to its evidence at the hub; infinite if it did not arrive."""
    missing = float("inf")
    sensors = [came[device][1] - sent if device in came else missing for device, sent in crossed.items()]
    # The sign of a camera is the picture that raised its alarm.
    return sensors + [came[device][1] - came[device][0] if device in came else missing for device in burning]


def _exact(ledger: Ledger) -> bool:
    done = ledger.analysed + ledger.duplicate + sum(ledger.shed.values()) + sum(ledger.rejected.values())
    return ledger.offered == done + ledger.waiting and ledger.waiting <= 2 * VIDEO_SLOTS  # and as many being analysed
