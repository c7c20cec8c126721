"""What a zone keeps for as long as an alarm or a fault is open, which may be days, takes little and does not grow."""

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
MB = 32  # what is asked of the process besides; the pictures alone are twice as much


def test_the_picture_of_a_sign_takes_no_memory_while_its_alarm_is_open() -> None:
    before, machines = resident_mb(os.getpid()), []
    for number in range(MANY):
        machine = ZoneMachine("default", f"hall-{number}")
        item = EvidenceItem(
            id=f"{number}", episode=f"{number}", fleet="default/cameras/f", device="cam-1", zone=machine.name,
            kind=Kind.KIND_FLAME, sense=Sense.SENSE_CAMERA, level=Level.LEVEL_ALARM, since_ns=NOW, until_ns=NOW,
            snapshot=PICTURE,
        )  # fmt: skip
        assert machine.evidence(item, NOW)
        assert item.snapshot == PICTURE  # which the history keeps
        machines.append(machine)
    assert resident_mb(os.getpid()) - before < MB


def test_a_fault_whose_reason_changes_every_second_takes_no_more_memory_for_it() -> None:
    machine = ZoneMachine("default", "hall")
    (opened,) = machine.fault("f", "cam-1", "silent", NOW)
    before = resident_mb(os.getpid())
    for number in range(8_000):
        reason = f"silent for {number} s{REASON}"
        assert machine.fault("f", "cam-1", reason, NOW + number * SECOND) == []
    (fault,) = machine.faults.values()
    assert (fault.reason, fault.since_ns) == (reason, opened.fault.since_ns)
    assert resident_mb(os.getpid()) - before < MB
