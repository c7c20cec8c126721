from embereye.camera.scheduling.admission import CameraAdmission, Demand
from embereye.units import SECOND


def demands(*shares):
    return [Demand(f"camera-{number}", 5.0, share / 5.0) for number, share in enumerate(shares)]


def decided(admission, wanted, seconds, threads=1, start=0):
    for second in range(seconds + 1):
        admission.decide(wanted, threads, (start + second) * SECOND + 1)
    return set(admission.refused)


def test_a_camera_the_pool_cannot_serve_is_refused_with_reason_and_remedy():
    admission = CameraAdmission()
    assert decided(admission, demands(0.3, 0.3, 0.7, 0.2), 4) == set()
    assert decided(admission, demands(0.3, 0.3, 0.7, 0.2), 6) == {"camera-2"}
    assert admission.refused["camera-2"] == (
        "refused: 5 frames/s of 140 ms need 70 % of a decoder, other cameras 80 % of this shard's 100 %."
        " Add shards, or lower this camera's fps.min or resolution"
    )


def test_a_short_burst_of_cost_refuses_no_camera():
    admission = CameraAdmission()
    for start in range(0, 60, 6):
        assert decided(admission, demands(0.8, 0.8), 3, start=start) == set()
        assert decided(admission, demands(0.4, 0.4), 1, start=start + 4) == set()


def test_a_new_camera_never_makes_a_watched_one_dark():
    admission = CameraAdmission()
    decided(admission, demands(0.4, 0.4), 6)
    assert decided(admission, demands(0.4, 0.4, 0.3), 6, start=10) == {"camera-2"}


def test_a_refused_camera_is_served_again_once_there_is_clearly_room():
    admission = CameraAdmission()
    wanted = demands(0.4, 0.3, 0.4)
    decided(admission, wanted, 6)
    assert decided(admission, demands(0.4, 0.1, 0.38), 3, start=10) == {"camera-2"}  # would fit, but without a reserve
    assert decided(admission, demands(0.2, 0.1, 0.4), 1, start=20) == set()
    assert decided(admission, demands(0.4), 1, start=30) == set()


def test_a_camera_of_unknown_cost_is_admitted():
    admission = CameraAdmission()
    assert decided(admission, demands(0.8, 0.0), 6) == set()
