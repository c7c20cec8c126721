import pytest

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.onvif.choice import choose_recorded, choose_watched, largest
from embereye.wire.onvif.media import Profile

MAIN = Profile("p1", "main", "H264", 1920, 1080, 25, source="v")
SUB = Profile("p2", "sub", "H264", 640, 360, 15, source="v")
TINY = Profile("p3", "tiny", "H264", 320, 180, 15, source="v")


def chosen(*profiles, wanted="", least=5.0):
    choice = choose_watched(profiles, wanted, least)
    return choice and choice.profile


def test_the_smallest_stream_with_enough_detail_is_analysed():
    choice = choose_watched([MAIN, TINY, SUB], "", 5.0)
    assert choice.profile is SUB
    assert choice.why == "the cheapest of 3 with at least 480 pixels"


def test_the_largest_of_small_streams_is_analysed():
    choice = choose_watched([TINY, Profile("p4", "less", "H264", 176, 144, 15, source="v")], "", 5.0)
    assert choice.profile is TINY
    assert choice.why == "the largest of 2, none has 480 pixels"


def test_a_cheaper_codec_is_preferred_at_equal_size():
    h265, jpeg = (Profile(encoding, encoding, encoding, 640, 360, 15, source="v") for encoding in ("H265", "JPEG"))
    assert chosen(h265, SUB) is SUB
    assert chosen(h265, SUB, jpeg) is jpeg


def test_a_stream_that_is_too_slow_is_used_only_as_a_last_resort():
    slow = Profile("p5", "slow", "JPEG", 640, 360, 1, source="v")
    assert chosen(MAIN, slow) is MAIN
    choice = choose_watched([slow], "", 5.0)
    assert choice.profile is slow
    assert "sends fewer than 5 frames/s" in choice.why


def test_the_first_of_several_video_sources_is_used_and_mentioned():
    other = Profile("q", "other", "H264", 640, 360, 15, source="w")
    choice = choose_watched([MAIN, other], "", 5.0)
    assert choice.profile is MAIN
    assert "the first of 2 video sources" in choice.why


def test_an_undecodable_stream_is_not_chosen():
    assert chosen(Profile("m", "m", "MPEG4", 640, 360)) is None
    assert chosen(Profile("a", "audio", "")) is None


@pytest.mark.parametrize("wanted", ["p2", "sub", "SUB"])
def test_a_profile_is_selected_by_token_or_name(wanted):
    assert chosen(MAIN, SUB, wanted=wanted) is SUB
    assert choose_recorded([MAIN, SUB], wanted).profile is SUB


def test_a_token_takes_precedence_over_a_name():
    confusing = Profile("x", "p2", "H264", 640, 360)
    assert chosen(confusing, SUB, wanted="p2") is SUB


def test_a_missing_profile_is_reported_with_the_existing_ones():
    with pytest.raises(SourceError, match='has no profile "nothing", only "main", "sub"'):
        choose_watched([MAIN, SUB], "nothing", 5.0)
    many = [Profile(str(number), f"n{number}", "H264") for number in range(20)]
    with pytest.raises(SourceError, match='"n7" and 12 more'):
        choose_recorded(many, "main")


def test_jpeg_cannot_be_recorded():
    with pytest.raises(SourceError, match=r'"j" .JPEG 640x480.: cannot be recorded'):
        choose_recorded([Profile("j", "j", "JPEG", 640, 480)], "j")


def test_the_largest_stream_of_a_source_is_found():
    jpeg = Profile("j", "j", "JPEG", 4096, 2160, source="v")
    assert largest([SUB, MAIN, jpeg, Profile("o", "o", "H264", 4096, 2160, source="w")], "v") is MAIN
    assert largest([jpeg], "v") is None
