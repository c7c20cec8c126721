import pytest

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.onvif.choice import choose_recorded, choose_watched, largest
from embereye.wire.onvif.media import Profile

MAIN = Profile("p1", "main", "H264", 1920, 1080, 25, source="v")
SUB = Profile("p2", "sub", "H264", 640, 360, 15, source="v")
TINY = Profile("p3", "tiny", "H264", 320, 180, 15, source="v")


def chosen(*profiles, wanted="", least=5.0):
    found = choose_watched(profiles, wanted, least)
    return found and found.profile


def test_the_smallest_stream_that_shows_enough_is_looked_at():
    choice = choose_watched([MAIN, TINY, SUB], "", 5.0)
    assert choice.profile is SUB
    assert choice.why == "the cheapest of 3 with at least 480 pixels"


def test_of_streams_that_are_all_small_the_largest_is_looked_at():
    choice = choose_watched([TINY, Profile("p4", "less", "H264", 176, 144, 15, source="v")], "", 5.0)
    assert choice.profile is TINY
    assert choice.why == "the largest of 2, none has 480 pixels"


def test_a_codec_that_costs_less_is_preferred_at_equal_size():
    h265, jpeg = (Profile(encoding, encoding, encoding, 640, 360, 15, source="v") for encoding in ("H265", "JPEG"))
    assert chosen(h265, SUB) is SUB
    assert chosen(h265, SUB, jpeg) is jpeg


def test_a_stream_that_is_too_slow_is_looked_at_only_where_no_other_is_there():
    slow = Profile("p5", "slow", "JPEG", 640, 360, 1, source="v")
    assert chosen(MAIN, slow) is MAIN
    choice = choose_watched([slow], "", 5.0)
    assert choice.profile is slow
    assert "sends fewer than 5 frames/s" in choice.why


def test_of_several_video_sources_the_first_is_looked_at_and_that_is_told():
    other = Profile("q", "other", "H264", 640, 360, 15, source="w")
    choice = choose_watched([MAIN, other], "", 5.0)
    assert choice.profile is MAIN
    assert "the first of 2 video sources" in choice.why


def test_what_cannot_be_decoded_is_not_chosen():
    assert chosen(Profile("m", "m", "MPEG4", 640, 360)) is None
    assert chosen(Profile("a", "audio", "")) is None


@pytest.mark.parametrize("wanted", ["p2", "sub", "SUB"])
def test_a_profile_goes_by_token_or_name(wanted):
    assert chosen(MAIN, SUB, wanted=wanted) is SUB
    assert choose_recorded([MAIN, SUB], wanted).profile is SUB


def test_a_token_goes_before_a_name():
    confusing = Profile("x", "p2", "H264", 640, 360)
    assert chosen(confusing, SUB, wanted="p2") is SUB


def test_a_profile_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(SourceError, match='has no profile "nothing", only "main", "sub"'):
        choose_watched([MAIN, SUB], "nothing", 5.0)
    many = [Profile(str(number), f"n{number}", "H264") for number in range(20)]
    with pytest.raises(SourceError, match='"n7" and 12 more'):
        choose_recorded(many, "main")


def test_jpeg_is_not_recorded_as_it_comes():
    with pytest.raises(SourceError, match=r'"j" .JPEG 640x480.: cannot be recorded'):
        choose_recorded([Profile("j", "j", "JPEG", 640, 480)], "j")


def test_the_largest_stream_of_a_source_is_known():
    jpeg = Profile("j", "j", "JPEG", 4096, 2160, source="v")
    assert largest([SUB, MAIN, jpeg, Profile("o", "o", "H264", 4096, 2160, source="w")], "v") is MAIN
    assert largest([jpeg], "v") is None
