import yaml
from hypothesis import given
from hypothesis import strategies as st

from embereye.camera.sources.onvif.found import FoundCamera
from embereye.wire.onvif.media import Profile
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.discovered import Naming, fleet_text

MAIN = Profile("p1", "main", "H264", 1920, 1080, 25, source="v")
SUB = Profile("p2", "sub", "H264", 640, 360, 15, source="v")
YARD = FoundCamera("onvif://10.0.0.7", "Yard north", "city hall", "ACME X-1", "0042", (MAIN, SUB), authenticated=True)


def entries(*cameras):
    document = yaml.safe_load(fleet_text(cameras, Naming()))
    parse_fleet(document)  # FleetError where it would be refused
    return document["spec"]["cameras"]


def test_a_camera_is_ready_to_apply_with_its_large_stream_recorded():
    (entry,) = entries(YARD)
    assert entry == {
        "id": "yard-north", "zone": "unassigned", "location": "city hall", "source": "onvif://10.0.0.7",
        "streams": {"record": "main"}, "credentialsRef": {"name": "cameras"},
    }  # fmt: skip
    text = fleet_text([YARD], Naming())
    assert "# ACME X-1 0042" in text
    assert '# detection uses "sub" (H264 640x360, 15 frames/s): the cheapest of 2 with at least 480 pixels' in text
    assert "kubectl --namespace default label secret cameras embereye.dev/allow-fleet-use=true" in text


def test_zones_follow_from_names_and_locations():
    cameras = [
        FoundCamera(f"onvif://10.0.0.{number}", name, location)
        for number, (name, location) in enumerate(
            [("HALL 1", ""), ("Gate", "yard, north"), ("x", ""), ("hall yard", "")]
        )
    ]
    naming = Naming(zones=[("hall *", "hall"), ("*Yard*", "yard")], zone="rest")
    text = fleet_text(cameras, naming)
    assert [entry["zone"] for entry in yaml.safe_load(text)["spec"]["cameras"]] == ["hall", "yard", "rest", "hall"]
    assert '# others are in the zone "rest"' in text


def test_an_open_camera_needs_no_secret():
    (entry,) = entries(FoundCamera("onvif://10.0.0.7", profiles=(SUB,)))
    assert "credentialsRef" not in entry
    assert "secret" not in fleet_text([FoundCamera("onvif://10.0.0.7", profiles=(SUB,))], Naming()).lower()


def test_names_that_yaml_would_misread_stay_names():
    document = yaml.safe_load(fleet_text([YARD], Naming("on", "12", "3", "null")))
    assert parse_fleet(document).key == "12/cameras/on"
    (entry,) = document["spec"]["cameras"]
    assert (entry["zone"], entry["credentialsRef"]) == ("3", {"name": "null"})


def test_an_unreadable_camera_is_listed_with_the_reason():
    camera = FoundCamera("onvif://10.0.0.9:8080").with_problem("no answer within 5 s\n- id: x")
    (entry,) = entries(camera)
    assert entry["id"] == "10.0.0.9-8080"
    assert "streams" not in entry
    assert "# its profiles are unknown: no answer within 5 s.- id: x" in fleet_text([camera], Naming())


def test_each_video_source_of_a_recorder_becomes_a_camera():
    others = [Profile(known.token + "b", known.name + " 2", known.encoding, known.width, known.height, 15, source="w")
              for known in (MAIN, SUB)]  # fmt: skip
    recorder = FoundCamera("onvif://10.0.0.7", "NVR", profiles=(MAIN, SUB, *others))
    entries_ = entries(recorder)
    assert [entry["id"] for entry in entries_] == ["nvr", "nvr-2"]
    assert [entry["streams"] for entry in entries_] == [
        {"detect": "sub", "record": "main"},
        {"detect": "sub 2", "record": "main 2"},
    ]


def test_an_ambiguous_name_is_replaced_by_the_token():
    profiles = (
        Profile("p1", "stream", "H264", 1920, 1080, source="v"),
        Profile("p2", "Stream", "H264", 640, 360, source="v"),
    )
    assert entries(FoundCamera("onvif://c", profiles=profiles))[0]["streams"] == {"record": "p1"}
    odd = (Profile("a/b", "x:y", "H264", 1920, 1080, source="v"), SUB)
    assert "streams" not in entries(FoundCamera("onvif://c", profiles=odd))[0]  # neither can be written


def test_without_cameras_the_fleet_is_empty():
    assert entries() == []


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60), st.text(max_size=40))
def test_odd_device_names_change_only_their_entry(name, maker, token, encoding):
    camera = FoundCamera(
        "onvif://10.0.0.7",
        name,
        name,
        maker,
        maker,
        (Profile(token or "t", name, encoding, 640, 360, source="v"), MAIN),
    )
    entries_ = entries(camera, YARD)
    assert [entry["source"] for entry in entries_] == ["onvif://10.0.0.7"] * 2
    assert all(entry["zone"] == "unassigned" for entry in entries_)
