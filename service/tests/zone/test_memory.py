"""A zone with an open alarm or fault, which may last days, needs little memory and does not grow."""

import os

from embereye.process.telemetry.usage import resident_mb
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Kind, Level, Sense
from embereye.zone.state import ZoneMachine

NOW = 1_700_000_000 * SECOND
PICTURE = bytes(100_000)
REASON = "; source: no answer from the camera's address" * 200
MANY = 640
MB = 32  # allowed growth of the process; the pictures alone are twice as large


def test_a_zone_does_not_store_the_picture_of_a_sign() -> None:
    before, machines = resident_mb(os.getpid()), []
    for number in range(MANY):
        machine = ZoneMachine("default", f"hall-{number}")
        item = EvidenceItem(
            id=f"{number}", episode=f"{number}", fleet="default/cameras/f", device="cam-1", zone=machine.name,
            kind=Kind.KIND_FLAME, sense=Sense.SENSE_CAMERA, level=Level.LEVEL_ALARM, since_ns=NOW, until_ns=NOW,
            snapshot=PICTURE,
        )  # fmt: skip
        assert machine.add_evidence(item, NOW)
        assert item.snapshot == PICTURE  # the history stores it
        machines.append(machine)
    assert resident_mb(os.getpid()) - before < MB


def test_a_fault_whose_reason_changes_every_second_does_not_grow() -> None:
    machine = ZoneMachine("default", "hall")
    (opened,) = machine.open_fault("f", "cam-1", "silent", NOW)
    before = resident_mb(os.getpid())
    for number in range(8_000):
        reason = f"silent for {number} s{REASON}"
        assert machine.open_fault("f", "cam-1", reason, NOW + number * SECOND) == []
    (fault,) = machine.faults.values()
    assert (fault.reason, fault.since_ns) == (reason, opened.fault.since_ns)
    assert resident_mb(os.getpid()) - before < MB
