"""Measure the stills per second that the hub stores, against pynetdicom's C-STORE, which writes the same files.

The bare steps are measured too: the same bytes are sent, hashed at both ends, written and synced.

Each client sends new stills and has a window of unacknowledged ones. Hub, DICOM and bare steps write below the same
folder, on a disk and in memory, in alternating rounds. The combination with the worst ratio counts.
"""

import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embereye.addons.control.link import Link
from embereye.addons.control.own_hub import OwnHub, running_hub
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse
from embereye_bench.hub.alarm_path import ROOT
from embereye_bench.hub.companions import Begin, Step, line_of, module, rate_of
from embereye_bench.report import Benchmark, Result, Scale, median

CALL = "embereye.v1.Clips/Store"
WINDOW_BYTES, WINDOW = 4 << 20, 64  # most that are pending for each client
CLIENTS = (1, 4, 16)
LEAST_SECONDS = 0.5  # of a round, so that every client's window is sent and answered several times
KINDS = (8, 32, 128, 512)  # KiB
MEMORY = Path("/dev/shm")


def _through_hub(hub: OwnHub, size: int) -> Begin:
    """Make the step of a client that sends new stills, with a window of unacknowledged ones."""
    most = max(1, min(WINDOW, WINDOW_BYTES // size))

    def begin(stack: contextlib.ExitStack, number: int) -> Step:
        link = stack.enter_context(Link(hub.tcp, CALL, hub.token, timeout=30))
        data, count, under_way = bytearray(os.urandom(size)), 0, 0
        data[:8] = time.time_ns().to_bytes(8, "big")

        def step(over: bool) -> int:
            nonlocal count, under_way
            while under_way < most and not over:
                count += 1
                under_way += 1
                data[8:24] = number.to_bytes(8, "big") + count.to_bytes(8, "big")
                clip = Clip(sha256=hashlib.sha256(data).hexdigest(), media=Clip.MEDIA_STILL, bytes=size, device="bench")
                link.send_with(StoreRequest(clip=clip), StoreRequest.DATA_FIELD_NUMBER, data)
            if not under_way:
                return 0
            answer = link.receive(StoreResponse)
            if not answer.whole:
                raise RuntimeError(answer.refused)
            under_way -= 1
            return 1

        return step

    return begin


def _bare(port: int, size: int) -> Begin:
    """Make the step of a client with the same window for `store` of `peers`."""
    most = max(1, min(WINDOW, WINDOW_BYTES // size))

    def begin(stack: contextlib.ExitStack, number: int) -> Step:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        connection.sendall(size.to_bytes(4))
        data, under_way = os.urandom(size), 0

        def step(over: bool) -> int:
            nonlocal under_way
            while under_way < most and not over:
                under_way += 1
                hashlib.sha256(data).digest()
                connection.sendall(data)
            if not under_way:
                return 0
            stored = len(connection.recv(under_way))
            if not stored:
                raise RuntimeError("the process that stores stills ended early. Its output is above.")
            under_way -= stored
            return stored

        return step

    return begin


@dataclass(frozen=True)
class _Round:
    """Stills per second."""

    hub: float
    dicom: float
    bare: float  # the bare steps


@contextlib.contextmanager
def _site(folder: Path) -> Iterator[tuple[OwnHub, int, int, Path]]:
    """Run a hub, pynetdicom's server and `store`, all writing below `folder`; yield the hub, ports and folder."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bench-") as name, contextlib.ExitStack() as stack:
        files = Path(name) / "files"
        files.mkdir()
        hub = stack.enter_context(running_hub(Path(name)))
        peer = stack.enter_context(module("embereye.addons.control.bench.dicom", str(files)))
        bare = stack.enter_context(module("embereye.addons.control.bench.peers", "store", str(files)))
        yield hub, int(line_of(peer)), int(line_of(bare)), files


def _measure(size: int, folder: Path, scale: Scale) -> dict[int, list[_Round]]:
    """Measure the rounds, by the number of clients."""
    from embereye.addons.control.bench import dicom

    by_clients: dict[int, list[_Round]] = {clients: [] for clients in CLIENTS}
    seconds = max(LEAST_SECONDS, scale.seconds / 3)
    with _site(folder) as (hub, port, bare_port, files):
        for _ in range(scale.rounds):
            for clients, rounds in by_clients.items():
                ours = rate_of(clients, seconds, _through_hub(hub, size))
                theirs = rate_of(clients, seconds, lambda stack, _: dicom.store_step(stack, port, size))
                rounds.append(_Round(ours, theirs, rate_of(clients, seconds, _bare(bare_port, size))))
                for file in files.iterdir():
                    file.unlink()
    return by_clients


def _store(kib: int) -> Benchmark:
    size = kib * 1024

    def measure(scale: Scale) -> Result:
        places = {"fsynced": ROOT if os.access(ROOT, os.W_OK) else Path(tempfile.gettempdir())}
        if os.access(MEMORY, os.W_OK):
            places["in memory"] = MEMORY
        reports, least, value, baseline = list[str](), float("inf"), 0.0, 0.0
        for name, folder in places.items():
            by_clients = list[str]()
            for clients, rounds in _measure(size, folder, scale).items():
                ours, theirs = median([stills.hub for stills in rounds]), median([stills.dicom for stills in rounds])
                ratio = median([stills.hub / stills.dicom for stills in rounds])
                bare = median([stills.bare / stills.dicom for stills in rounds])
                by_clients.append(f"{clients}: {ours:.0f} of {theirs:.0f} ({ratio:.1f}, the bare steps {bare:.1f})")
                if ratio < least:
                    value, baseline, least = ours, theirs, ratio
            reports.append(f"{name}, by clients {', '.join(by_clients)}")
        return Result(
            f"store-{kib}k",
            value,
            f"/s, the least favourable; {'; '.join(reports)}",
            baseline,
            least,
            "≥ 5",
            least >= 5,
        )

    measure.__doc__ = (
        f"Measure stills of {kib} KiB, of 1, 4 and 16 clients, on a disk and in memory. Baseline: C-STORE."
    )
    return measure


STORES: dict[str, Benchmark] = {f"store-{kib}k": _store(kib) for kib in KINDS}
