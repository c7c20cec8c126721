"""Checks of this machine: ports, clock, disk and decoding speed."""

import contextlib
import ctypes
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye.units import counted
from embereye_cli.setup.findings import FAIL, OK, WARN, Finding
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet
from embereye_operator.runtime.local.runtime import check_port
from embereye_operator.up.options import UpOptions, wanted_ports

UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
TIMEX_BYTES = 256  # at least the size of its struct timex; all zero: only read
LEAST_FREE, ENOUGH_FREE = 1e9, 8e9  # bytes; clips and recordings may take 5 GB
SYNCS = 5
SLOW_SYNC_SECONDS = 0.1  # an alarm is stored before it is sent
PICTURE = (480, 640)  # height and width, pixels
DECODE_SECONDS = 0.3
BUSY_SHARE = 0.6  # of the cores, for decoding alone


def check_machine(options: UpOptions, fleets: Iterable[Fleet]) -> Iterator[Finding]:
    """Check all of this machine that `embereye up` needs with these options and fleets."""
    fleets = list(fleets)
    yield from check_ports(options, fleets)
    yield check_clock()
    yield check_disk(options.data)
    yield check_decoding(fleets)


def check_ports(options: UpOptions, fleets: Iterable[Fleet]) -> Iterator[Finding]:
    """Check that the ports are free, unless the `embereye up` of this data folder uses them."""
    if _is_locked(options.data):
        yield Finding("ports", OK, f"`embereye up` runs with the data folder {options.data}")
        return
    try:
        wanted = wanted_ports(options, fleets)
    except UserError as error:
        yield Finding("ports", FAIL, str(error))
        return
    for port, use in wanted.items():
        try:
            check_port(port, use.purpose, use.remedy, use.host)
        except UserError as error:
            yield Finding(f"port {port}", FAIL, str(error).rpartition(": ")[0], use.remedy)
        else:
            yield Finding(f"port {port}", OK, f"free for {use.purpose}")


def _is_locked(data: Path) -> bool:
    try:
        with (data / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def check_clock() -> Finding:
    """Check that the clock is synchronised: alarms have times, and cameras refuse log-ins far from theirs."""
    state = -1
    with contextlib.suppress(AttributeError, OSError):
        state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    if state < 0:
        return Finding("clock", WARN, f"{now}; this system does not say if it is synchronised", "compare it")
    if state == UNSYNCHRONISED:
        return Finding("clock", WARN, f"{now}; not synchronised: alarms may have wrong times",
                       "install chrony, or `timedatectl set-ntp true`")  # fmt: skip
    return Finding("clock", OK, f"{now}; synchronised")


def check_disk(data: Path) -> Finding:
    """Check space and speed of the disk with the data folder, which need not exist yet."""
    folder = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    subject = f"disk of {data}"
    try:
        slowest = _sync_seconds(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(subject, FAIL, f"{folder} cannot be written: {error.strerror}", "choose another with --data")
    text = f"{free / 1e9:.0f} GB free, a write takes {slowest * 1000:.0f} ms"
    if free < LEAST_FREE:
        return Finding(subject, FAIL, f"{free / 1e9:.1f} GB free", "free at least 8 GB, or choose another with --data")
    if free < ENOUGH_FREE:
        return Finding(subject, WARN, text, "clips and recordings may take 5 GB: EMBEREYE_CLIPS=1G limits them")
    if slowest > SLOW_SYNC_SECONDS:
        return Finding(subject, WARN, text, "each alarm is written before it is sent: use a faster disk")
    return Finding(subject, OK, text)


def _sync_seconds(folder: Path) -> float:
    """Median seconds for a durable write in `folder`."""
    spent = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            spent.append(time.perf_counter() - began)
    return sorted(spent)[SYNCS // 2]


def check_decoding(fleets: Iterable[Fleet]) -> Finding:
    """Check that the cores decode as many pictures as the cameras of `fleets` are to be analysed at."""
    import numpy as np
    import simplejpeg

    from embereye.camera.decode.image import DecodeOrder, decode_frame

    ramp = np.add.outer(np.arange(PICTURE[0]), np.arange(PICTURE[1])) % 256
    picture = np.repeat(ramp.astype(np.uint8)[:, :, None], 3, axis=2)
    picture[::7, ::5] ^= 85
    data, order = simplejpeg.encode_jpeg(picture, quality=85), DecodeOrder(4)
    decoded, began = 0, time.thread_time()
    while (spent := time.thread_time() - began) < DECODE_SECONDS:
        decode_frame(order, data, PICTURE[1], PICTURE[0])
        decoded += 1
    cores = os.cpu_count() or 1
    speed = decoded / spent
    rates = [
        (camera.fps and camera.fps.target) or fleet.spec.fps.target
        for fleet in fleets
        if isinstance(fleet.spec, CameraFleetSpec)
        for camera in fleet.spec.cameras
    ]
    text = f"{speed:,.0f} pictures/s a core (JPEG, 640x480), {counted(cores, 'core')}"
    if not rates:
        return Finding("decoding", OK, text)
    wanted = sum(rates)
    text += f"; {counted(len(rates), 'camera')} at {wanted:,.0f} pictures/s"
    if wanted > BUSY_SHARE * speed * cores:
        return Finding("decoding", WARN, text, "lower fps.target, choose smaller streams, or see `embereye plan`")
    return Finding("decoding", OK, text)
