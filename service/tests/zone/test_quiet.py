from embereye.margins import Margin, Peak, measured
from embereye.units import HOUR, MINUTE, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Silence
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.quiet import explain, marks_of, shortfall, silences_in

START = 1_700_000_000 * SECOND


def margin(number: int, *peaks: Peak, **rest: object) -> Margin:
    from_ns = START + 5 * number * SECOND
    return {"device": "d", "fromNs": from_ns, "untilNs": from_ns + 5 * SECOND, "peaks": peaks, **rest}  # type: ignore[typeddict-item]


def heat(celsius: float, level: str = "clear") -> Peak:
    return {"kind": "heat", "level": level, "score": 0.1, "nearest": measured("temperature.max", celsius, 90, "°C")}


def flame(score: float) -> Peak:
    return {"kind": "flame", "level": "clear", "score": score, "nearest": measured("flame.score", score, 0.6, "1")}


def test_the_nearest_result_of_each_kind_says_how_much_was_missing() -> None:
    explanation = explain([margin(0, heat(22), flame(0.31)), margin(1, heat(61.2), flame(0.1)), margin(2, heat(60))])
    assert [nearest.words for nearest in explanation.nearest] == [
        "heat: temperature.max 61.2 °C of 90 °C: 28.8 K short, 68 % of the limit",
        "flame: flame.score 0.31 of 0.6: 0.29 short, 52 % of the limit",
    ]
    assert (explanation.nearest[0].at_ns, explanation.raised) == (START + 10 * SECOND, False)


def test_a_level_counts_more_than_a_share_of_a_limit() -> None:
    pre_alarm = heat(50, "pre-alarm")
    (nearest,) = explain([margin(0, heat(61.2)), margin(1, pre_alarm)]).nearest
    assert nearest.peak == pre_alarm
    assert shortfall(measured("temperature.max", 93, 90, "°C")) == "at its limit, but not confirmed"


def test_an_alarm_that_was_raised_is_said_to_be_one() -> None:
    explanation = explain([margin(0, heat(95, "critical"))])
    assert (explanation.nearest[0].words, explanation.raised) == (
        "heat: critical, temperature.max 95 °C of 90 °C",
        True,
    )


def test_what_was_held_back_is_named_once_with_its_reason() -> None:
    known: Peak = {**flame(0.4), "suppressed": [{"by": "familiar", "why": "this place is 90 % familiar"}]}
    explanation = explain(
        [
            margin(0, known, masked=0.12, shed={"queue full": 3}, rejected={"undecodable": 1}),
            margin(1, known, masked=0.12, shed={"queue full": 4}, blind="silent for 12 s"),
        ]
    )
    assert [(item["by"], item["why"]) for item in explanation.suppressed] == [
        ("blind", "for 5 s: silent for 12 s"),
        ("familiar", "flame: this place is 90 % familiar"),
        ("shed", "7 frames or readings not analysed: queue full"),
        ("rejected", "1 frame or reading refused: undecodable"),
        ("mask", "masks hide 12 % of the picture, which is not analysed"),
    ]


def silence(device: str = "") -> AlarmEvent:
    about = Silence(id="1", device=device, who="kim", since_ns=START, until_ns=START + 30 * MINUTE)
    return AlarmEvent(type=AlarmEvent.TYPE_SILENCE, time_ns=START, why="zone hall is silenced by kim", silence=about)


def test_a_silence_counts_for_its_device_until_it_ends() -> None:
    begun = silence()
    at = START + 10 * MINUTE
    (item,) = silences_in([begun], "d", at, at + MINUTE)
    assert item == {"by": "silence", "why": "zone hall is silenced by kim"}
    ended = AlarmEvent(type=AlarmEvent.TYPE_SILENCE, time_ns=START + 5 * MINUTE, silence=begun.silence)
    assert not list(silences_in([begun, ended], "d", at, at + MINUTE))
    assert not list(silences_in([silence("other")], "d", at, at + MINUTE))
    assert not list(silences_in([begun], "d", START + HOUR, START + HOUR + MINUTE))


def test_a_mark_counts_for_later_signs_of_its_device() -> None:
    mark = FalseAlarm(time_ns=START, who="kim", reason="a heat gun", signs=[EvidenceItem(fleet="f", device="d")])
    (item,) = marks_of([mark], "f", "d", START + MINUTE)
    assert item["why"] == (
        "signs as in an alarm that kim marked as false on 2023-11-14 (a heat gun) are a pre-alarm only"
    )
    assert not list(marks_of([mark], "f", "other", START + MINUTE))
    assert not list(marks_of([mark], "f", "d", START))
