"""How many stills the hub stores a second, against pynetdicom's C-STORE that writes the same files.

Beside both the bare steps: the same bytes sent, hashed at both ends, written and synced, and nothing else.
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

from embereye.client.link import Link
from embereye.sim.own_hub import OwnHub, running_hub
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse
from embereye_bench.hub.alarm_path import ROOT
from embereye_bench.hub.companions import Begin, Step, line_of, module, rate_of
from embereye_bench.report import Benchmark, Result, Scale, median

CALL = "embereye.v1.Clips/Store"
WINDOW_BYTES, WINDOW = 4 << 20, 64  # under way for each client, at most
CLIENTS = (1, 4, 16)
LEAST_SECONDS = 0.5  # of a round: all that a client has under way is sent and answered several times
KINDS = (8, 32, 128, 512)  # KiB
MEMORY = Path("/dev/shm")


def _through_hub(hub: OwnHub, size: int) -> Begin:
    """A client sends ever new stills, so many ahead of their acknowledgements."""
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
    """A client that is as many ahead of the `keep` of `peers`."""
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
            told = len(connection.recv(under_way))
            if not told:
                raise RuntimeError("the process that keeps stills has ended early; its last words are above")
            under_way -= told
            return told

        return step

    return begin


@dataclass(frozen=True)
class _Round:
    """Stills a second."""

    hub: float
    dicom: float
    bare: float  # the bare steps


@contextlib.contextmanager
def _site(folder: Path) -> Iterator[tuple[OwnHub, int, int, Path]]:
    """A hub, a server of pynetdicom and `keep` that write below `folder`; the ports of the latter and where they do."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bench-") as name, contextlib.ExitStack() as stack:
        files = Path(name) / "files"
        files.mkdir()
        hub = stack.enter_context(running_hub(Path(name)))
        peer = stack.enter_context(module("embereye_bench.hub.dicom", str(files)))
        keep = stack.enter_context(module("embereye_bench.hub.peers", "keep", str(files)))
        yield hub, int(line_of(peer)), int(line_of(keep)), files


def _measure(size: int, folder: Path, scale: Scale) -> dict[int, list[_Round]]:
    """The rounds, by the number of clients."""
    from embereye_bench.hub import dicom

    found: dict[int, list[_Round]] = {clients: [] for clients in CLIENTS}
    seconds = max(LEAST_SECONDS, scale.seconds / 3)
    with _site(folder) as (hub, port, keep, files):
        for _ in range(scale.rounds):
            for clients, rounds in found.items():
                ours = rate_of(clients, seconds, _through_hub(hub, size))
                theirs = rate_of(clients, seconds, lambda stack, _: dicom.storing(stack, port, size))
                rounds.append(_Round(ours, theirs, rate_of(clients, seconds, _bare(keep, size))))
                for file in files.iterdir():
                    file.unlink()
    return found


def _store(kib: int) -> Benchmark:
    size = kib * 1024

    def measure(scale: Scale) -> Result:
        places = {"fsynced": ROOT if os.access(ROOT, os.W_OK) else Path(tempfile.gettempdir())}
        if os.access(MEMORY, os.W_OK):
            places["in memory"] = MEMORY
        told, least, value, baseline = list[str](), float("inf"), 0.0, 0.0
        for name, folder in places.items():
            each = list[str]()
            for clients, rounds in _measure(size, folder, scale).items():
                ours, theirs = median([one.hub for one in rounds]), median([one.dicom for one in rounds])
                ratio = median([one.hub / one.dicom for one in rounds])
                bare = median([one.bare / one.dicom for one in rounds])
                each.append(f"{clients}: {ours:.0f} of {theirs:.0f} ({ratio:.1f}, the bare steps {bare:.1f})")
                if ratio < least:
                    value, baseline, least = ours, theirs, ratio
            told.append(f"{name}, by clients {', '.join(each)}")
        return Result(
            f"store-{kib}k", value, f"/s, the least favourable; {'; '.join(told)}", baseline, least, "≥ 5", least >= 5
        )

    measure.__doc__ = (
        f"Stills of {kib} KiB, of 1, 4 and 16 clients, on a disk and in memory. Baseline: C-STORE, the same."
    )
    return measure


STORES: dict[str, Benchmark] = {f"store-{kib}k": _store(kib) for kib in KINDS}
