"""Changes of devices in the text of manifests: only the device's lines differ."""

import difflib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from embereye.addons.setup.editing import Action, Change, EditError, declared, edit

YARD = "default/cameras/yard"
BLOCK = """\
# Cameras of the yard: ask Ada before you change them.
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {name: yard}
spec:
  cameras:
    # at the gate, größer als\u2028    # die anderen
    - id: gate
      zone: yard   # not the street
      source: "rtsp://10.0.0.1/1"
      # the street
      masks:
        - points: [{left: 0, top: 0}, {left: 1, top: 0}, {left: 1, top: 1}]
    - id: ramp
      zone: ramp
      source: rtsp://10.0.0.2/1

  # how long a camera may be silent
  deadline: 5s
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data:
  text: |
    unchanged
"""
FLOW = """\
kind: SensorFleet
metadata:
  name: hall
  namespace: mill
spec:
  sensors:
  - {id: s-1, zone: hall, location: "North, high"}  # by the door
  - {id: s-2, zone: hall}
  deadline: 5s
"""


def change(action: Action, device: str, fleet: str = YARD, **fields: object) -> Change:
    return Change(fleet, action, device, fields)


def lines(before: str, after: str) -> list[str]:
    """The changed lines, with - and + before them."""
    compared = difflib.ndiff(before.splitlines(), after.splitlines())
    return [f"{line[0]}{line[2:]}" for line in compared if line[0] in "+-"]


def devices(text: str, fleet: str = YARD) -> list[dict[str, object]]:
    return [dict(device) for each in declared(text) if each.fleet == fleet for device in each.devices]


def test_a_new_device_has_the_form_of_the_one_before() -> None:
    text = edit(
        BLOCK, change(Action.ADD, "dock", zone="dock", source="rtsp://10.0.0.3/1", credentialsRef={"name": "a"})
    )
    assert lines(BLOCK, text) == [
        "+    - id: dock", "+      zone: dock", "+      source: rtsp://10.0.0.3/1", "+      credentialsRef: {name: a}",
    ]  # fmt: skip
    text = edit(FLOW, change(Action.ADD, "s-3", "mill/sensors/hall", zone="hall"))
    assert lines(FLOW, text) == ["+  - {id: s-3, zone: hall}"]


def test_a_changed_value_keeps_the_remark_behind_it() -> None:
    assert lines(BLOCK, edit(BLOCK, change(Action.CHANGE, "gate", zone="gate"))) == [
        "-      zone: yard   # not the street", "+      zone: gate   # not the street",
    ]  # fmt: skip
    text = edit(FLOW, change(Action.CHANGE, "s-1", "mill/sensors/hall", zone="loft", location=None))
    assert "  - {id: s-1, zone: loft}  # by the door\n" in text


def test_a_field_is_added_replaced_and_removed() -> None:
    masks = [{"points": [{"left": 0.1, "top": 0.2}, {"left": 0.3, "top": 0.2}, {"left": 0.3, "top": 0.4}]}]
    text = edit(BLOCK, change(Action.CHANGE, "gate", masks=masks))
    assert devices(text)[0]["masks"] == masks
    assert len(lines(BLOCK, text)) == 2
    text = edit(BLOCK, change(Action.CHANGE, "ramp", masks=masks))
    assert lines(BLOCK, text)[0] == "+      masks:"
    assert devices(text)[1]["masks"] == masks
    assert "masks" not in devices(edit(BLOCK, change(Action.CHANGE, "gate", masks=None)))[0]


BROKER = {"broker": "mqtts://broker.lan:8883", "credentialsRef": {"name": "hall-broker"}}


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("", ["+  mqtt: {broker: mqtts://broker.lan:8883, credentialsRef: {name: hall-broker}}"]),
        (
            "  mqtt: {broker: mqtt://old.lan}  # in the attic\n",
            [
                "-  mqtt: {broker: mqtt://old.lan}  # in the attic",
                "+  mqtt: {broker: mqtts://broker.lan:8883, credentialsRef: {name: hall-broker}}  # in the attic",
            ],
        ),
        (
            "  mqtt:\n    broker: mqtt://old.lan  # in the attic\n",
            [
                "-    broker: mqtt://old.lan  # in the attic", "+    broker: mqtts://broker.lan:8883  # in the attic",
                "+    credentialsRef: {name: hall-broker}",
            ],
        ),
    ],
)  # fmt: skip
def test_a_broker_is_written_with_its_sensor_and_keeps_remarks(given: str, changed: list[str]) -> None:
    text = FLOW.replace("  deadline: 5s\n", f"{given}  deadline: 5s\n")
    wanted = Change("mill/sensors/hall", Action.ADD, "k-1", {"zone": "hall", "source": "mqtt:kitchen"}, BROKER)
    written = edit(text, wanted)
    added = "+  - {id: k-1, zone: hall, source: mqtt:kitchen}"
    assert sorted(lines(text, written)) == sorted([*changed, added])
    assert next(declared(written)).mqtt == BROKER
    bare = edit(written, Change("mill/sensors/hall", Action.CHANGE, "k-1", {}, {"credentialsRef": None}))
    assert next(declared(bare)).mqtt == {"broker": "mqtts://broker.lan:8883"}


def test_a_removed_device_leaves_comments_of_others() -> None:
    text = edit(BLOCK, change(Action.REMOVE, "ramp"))
    assert lines(BLOCK, text) == ["-    - id: ramp", "-      zone: ramp", "-      source: rtsp://10.0.0.2/1"]
    with pytest.raises(EditError, match="the last device"):
        edit(text, change(Action.REMOVE, "gate"))


@pytest.mark.parametrize("end", ["  cameras: []   # none yet\n  deadline: 5s", "  deadline: 5s\n", "  cameras:\n"])
def test_the_first_device_of_a_fleet(end: str) -> None:
    text = f"kind: CameraFleet\nmetadata: {{name: yard}}\nspec:\n{end}"
    for device in ("a", "b"):
        text = edit(text, change(Action.ADD, device, zone="yard"))
    assert devices(text) == [{"id": "a", "zone": "yard"}, {"id": "b", "zone": "yard"}]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (change(Action.ADD, "gate"), "already"),
        (change(Action.CHANGE, "roof", zone="x"), "does not declare roof"),
        (change(Action.REMOVE, "gate", "mill/cameras/yard"), "no fleet"),
    ],
)
def test_a_change_that_cannot_be_made_has_a_reason(wanted: Change, reason: str) -> None:
    with pytest.raises(EditError, match=reason):
        edit(BLOCK, wanted)


@pytest.mark.parametrize("text", ["{", "kind: CameraFleet\nmetadata: {name: yard}\nspec: {cameras: [{id: a}]}\n"])
def test_a_file_of_another_form_is_left_alone(text: str) -> None:
    with pytest.raises(EditError):
        edit(text, change(Action.ADD, "b", zone="yard"))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(
    WORDS,
    st.sampled_from(
        ["on", "no", "null", "1e3", "0x1f", "12:30", "~", "a: b", "a #b", "- a", "2026-11-29", "2026-13-45", "yes:"]
    ),
    st.lists(st.dictionaries(st.sampled_from(["left", "top"]), st.floats(0, 1), min_size=1), max_size=3),
    st.lists(WORDS, max_size=3),
)


@given(
    st.dictionaries(st.sampled_from(["zone", "location", "source", "masks"]), VALUES), st.sampled_from([BLOCK, FLOW])
)
def test_any_value_is_read_as_it_was_written(fields: dict[str, object], text: str) -> None:
    fleet = next(each.fleet for each in declared(text))
    added = edit(text, Change(fleet, Action.ADD, "new", fields))
    assert devices(added, fleet)[-1] == {"id": "new", **fields}
    first = devices(text, fleet)[0]
    changed = edit(text, Change(fleet, Action.CHANGE, str(first["id"]), fields))
    assert devices(changed, fleet) == [first | fields, *devices(text, fleet)[1:]]
    assert list(yaml.safe_load_all(changed))[1:] == list(yaml.safe_load_all(text))[1:]
