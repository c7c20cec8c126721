"""How many stills the hub stores a second, against pynetdicom's C-STORE that writes the same files."""

import contextlib
import hashlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embereye.client.link import Link
from embereye.sim.own_hub import running_hub
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse
from embereye_bench.hub.lockstep import line_of, module
from embereye_bench.report import Benchmark, Result, Scale

if TYPE_CHECKING:
    from pydicom import Dataset
    from pynetdicom import AE

CALL = "embereye.v1.Clips/Store"
WINDOW = 64 * 1024 * 16  # bytes under way for each client
CLIENTS = (1, 4, 16)
KINDS = (8, 32, 128, 512)  # KiB
ROOT = Path(__file__).parents[3]


def _contents(size: int, number: int) -> Iterator[tuple[Clip, bytes]]:
    """Ever new contents, and what is told of them."""
    data, count = bytearray(os.urandom(size)), 0
    while True:
        count += 1
        data[:16] = number.to_bytes(8, "big") + count.to_bytes(8, "big")
        whole = bytes(data)
        yield Clip(sha256=hashlib.sha256(whole).hexdigest(), media=Clip.MEDIA_STILL, bytes=size, device="bench"), whole


def _run(clients: int, seconds: float, client: Callable[[int, float], int]) -> float:
    """What all of `client(number, until)` together do a second."""
    counts, began = [0] * clients, time.perf_counter()

    def run(number: int) -> None:
        counts[number] = client(number, began + seconds)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def _through_hub(address: str, token: str, size: int, clients: int, seconds: float) -> float:
    def client(number: int, until: float) -> int:
        under_way, stored = 0, 0
        most = max(1, min(64, WINDOW // size))
        with Link(address, CALL, token, timeout=30) as link:
            for clip, data in _contents(size, time.perf_counter_ns() + number):
                over = time.perf_counter() >= until
                if not over:
                    link.send(StoreRequest(clip=clip, data=data))
                    under_way += 1
                while under_way and (over or under_way >= most):
                    answer = link.receive(StoreResponse)
                    if not answer.whole:
                        raise RuntimeError(answer.refused)
                    under_way, stored = under_way - 1, stored + 1
                if over:
                    break
        return stored

    return _run(clients, seconds, client)


def _dicom() -> "AE":
    from pynetdicom import AE
    from pynetdicom.sop_class import SecondaryCaptureImageStorage  # type: ignore[attr-defined]

    entity = AE()
    entity.add_requested_context(SecondaryCaptureImageStorage)
    entity.add_supported_context(SecondaryCaptureImageStorage)
    entity.maximum_associations = 64
    entity.maximum_pdu_size = 0  # no limit, which is its quickest
    return entity


def _picture(size: int) -> "Dataset":
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ImplicitVRLittleEndian
    from pynetdicom.sop_class import SecondaryCaptureImageStorage  # type: ignore[attr-defined]

    picture = Dataset()
    picture.SOPClassUID = SecondaryCaptureImageStorage
    picture.PatientID = "bench"
    picture.Rows, picture.Columns, picture.BitsAllocated, picture.SamplesPerPixel = 1, size // 2, 16, 1
    picture.PixelData = os.urandom(size)
    picture["PixelData"].VR = "OW"
    picture.file_meta = FileMetaDataset()
    picture.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    return picture


def _through_dicom(port: int, size: int, clients: int, seconds: float) -> float:
    entity = _dicom()

    def client(number: int, until: float) -> int:
        from pydicom.uid import generate_uid

        association, picture, stored = entity.associate("127.0.0.1", port), _picture(size), 0
        if not association.is_established:
            raise RuntimeError("pynetdicom's server does not associate")
        while time.perf_counter() < until:
            picture.SOPInstanceUID = generate_uid()
            if getattr(association.send_c_store(picture), "Status", None) != 0:
                break  # it was broken off, which on a busy machine happens: what came before counts
            stored += 1
        association.release()
        return stored

    return _run(clients, seconds, client)


def _serve(folder: Path, synced: bool) -> None:
    """Pynetdicom's server, which writes what comes into files and syncs them where it is asked to."""
    from pynetdicom import evt

    def store(event: Any) -> int:
        path = folder / str(event.request.AffectedSOPInstanceUID)
        with path.open("wb") as file:
            file.write(event.encoded_dataset())
            if synced:
                file.flush()
                os.fsync(file.fileno())
        return 0x0000

    server = _dicom().start_server(("127.0.0.1", 0), block=False, evt_handlers=[(evt.EVT_C_STORE, store)])
    assert server is not None
    print(server.server_address[1], flush=True)
    threading.Event().wait()


def _store(kib: int) -> Benchmark:
    size = kib * 1024

    def measure(scale: Scale) -> Result:
        seconds = 3.0 if scale.seconds >= 3 else 1.0
        found, least = list[str](), float("inf")
        value = baseline = 0.0
        place = ROOT if os.access(ROOT, os.W_OK) else None  # on a disk: in memory nothing takes time to be durable
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place, prefix=".bench-")))
            hub = stack.enter_context(running_hub(folder))
            ports = {}
            for name in ("synced", "unsynced"):
                (folder / name).mkdir()
                peer = stack.enter_context(module("embereye_bench.hub.storing", str(folder / name), name))
                ports[name] = int(line_of(peer))
            for clients in CLIENTS:
                ours = _through_hub(hub.tcp, hub.token, size, clients, seconds)
                synced, unsynced = (
                    _through_dicom(ports[name], size, clients, seconds) for name in ("synced", "unsynced")
                )
                found.append(f"{clients}: {ours:.0f}, C-STORE {synced:.0f} fsynced, {unsynced:.0f} not")
                if (share := ours / max(synced, unsynced)) < least:
                    value, baseline, least = ours, max(synced, unsynced), share
        unit = f"/s fsynced, the least favourable; by clients {'; '.join(found)}"
        return Result(f"store-{kib}k", value, unit, baseline, least, "≥ 5 C-STORE", least >= 5)

    measure.__doc__ = f"Stills of {kib} KiB, each durable when it is acknowledged, of 1, 4 and 16 clients."
    return measure


STORES: dict[str, Benchmark] = {f"store-{kib}k": _store(kib) for kib in KINDS}

if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2] == "synced")
