"""Run pynetdicom as the hub's baseline for echo and store: its client, and its server in a separate process.

As a program, it is the server: it prints its port and runs until killed. The benchmarks import the client's steps. Each
step waits for its answer, because pynetdicom's client has one pending operation at a time. An aborted association is
opened again, and its operation is not counted.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ImplicitVRLittleEndian, generate_uid
from pynetdicom import AE, evt
from pynetdicom.association import Association
from pynetdicom.sop_class import SecondaryCaptureImageStorage, Verification  # type: ignore[attr-defined]

from embereye_bench.hub.companions import Step

HOST = "127.0.0.1"


def _entity() -> AE:
    """Make an application entity that echoes and stores."""
    entity = AE()
    for service in (Verification, SecondaryCaptureImageStorage):
        entity.add_requested_context(service)
        entity.add_supported_context(service)
    entity.maximum_associations = 64
    entity.maximum_pdu_size = 0  # unlimited, which is fastest
    return entity


def _associate(stack: contextlib.ExitStack, port: int) -> Association:
    association = _entity().associate(HOST, port)
    if not association.is_established:
        raise RuntimeError("no association with pynetdicom's server")
    stack.callback(association.release)
    return association


def echo_step(stack: contextlib.ExitStack, port: int) -> Step:
    """Make a client's step: one C-ECHO, which waits for its answer."""
    return _step(stack, port, lambda association: association.send_c_echo())


def store_step(stack: contextlib.ExitStack, port: int, size: int) -> Step:
    """Make a client's step: one C-STORE of a picture of `size` bytes, which waits for its answer."""
    picture = _picture(size)

    def send(association: Association) -> Any:
        picture.SOPInstanceUID = generate_uid()
        return association.send_c_store(picture)

    return _step(stack, port, send)


def _step(stack: contextlib.ExitStack, port: int, send: Callable[[Association], Any]) -> Step:
    association = _associate(stack, port)

    def step(over: bool) -> int:
        nonlocal association
        if over:
            return 0
        if getattr(send(association), "Status", None) == 0:
            return 1
        association = _associate(stack, port)  # it was aborted, as happens on a busy machine
        return 0

    return step


def _picture(size: int) -> Dataset:
    picture = Dataset()
    picture.SOPClassUID = SecondaryCaptureImageStorage
    picture.PatientID = "bench"
    picture.Rows, picture.Columns, picture.BitsAllocated, picture.SamplesPerPixel = 64, size // 128, 16, 1
    picture.PixelData = os.urandom(size)
    picture["PixelData"].VR = "OW"
    picture.file_meta = FileMetaDataset()
    picture.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    return picture


def serve(folder: Path) -> None:
    """Echo, and write pictures into files of `folder`, durably before they are acknowledged. Runs until killed."""

    def store(event: Any) -> int:
        path = folder / str(event.request.AffectedSOPInstanceUID)
        with path.open("wb") as file:
            file.write(event.encoded_dataset())
            file.flush()
            os.fsync(file.fileno())
        return 0x0000

    server = _entity().start_server((HOST, 0), block=False, evt_handlers=[(evt.EVT_C_STORE, store)])
    assert server is not None
    print(server.server_address[1], flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
