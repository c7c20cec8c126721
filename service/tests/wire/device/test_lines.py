"""The devices' text protocol."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embereye.wire.device.commands import CALIBRATION, REQUEST, START, CommandParser
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import (
    BAD_EEPROM,
    BAD_FRAME,
    BAD_NAME,
    BAD_VALUE,
    CUT_OFF,
    NO_START,
    NO_VALUE,
    REASONS,
    TOO_LONG,
    UNKNOWN_WORD,
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    SensorReading,
    SerialNumber,
)
from embereye.wire.device.reader import MAX_LINE, LineReader

FRAME_768 = bytes(range(256)) * 6
FRAME_834 = FRAME_768 + bytes(132)
EEPROM_BYTES = bytes(reversed(range(256))) * 6 + bytes(128)
HEX_768, HEX_834, HEX_832 = FRAME_768.hex().upper(), FRAME_834.hex().upper(), EEPROM_BYTES.hex().upper()


def spaced(words: bytes) -> str:
    return words.hex(" ", 2).upper()


# Lines that devices send, and their messages.
LINES: list[tuple[str, Message]] = [
    ("#serialno:EE-0042!", SerialNumber("EE-0042")),
    ("#SERIALNO:EE-0042!", SerialNumber("EE-0042")),
    ("#locid:Boiler room!", LocationId("Boiler room")),
    ("#locid: hall 2 !", LocationId("hall 2")),
    ("#Sensor1234:ADC1=277,ADC2=1304,ADC3:=2,DIO=0!", SensorReading("1234", 277, 1304, 2, False)),
    ("#Sensor:1234:ADC1=277,ADC2=1304,ADC3=2,DIO=1!", SensorReading("1234", 277, 1304, 2, True)),
    ("#Sensor:ADC1=277,ADC2=1304,ADC3=2,DIO=0!", SensorReading(None, 277, 1304, 2, False)),
    ("#Sensor:ADC3:=1!", SensorReading(None, gas_adc=1)),
    ("#Sensor:hall:ADC1:=12.5, ADC2 = 3e2!", SensorReading("hall", 12.5, 300)),
    ("#Sensor00:1B:44:ADC1=1!", SensorReading("00:1B:44", 1)),
    ("#Sensor:MPY30=1!", SensorReading(None, flame_detected=True)),
    ("#Sensor:MPY30=0,DIO=1!", SensorReading(None, flame_detected=True)),
    ("#Sensor7:ADC1=1,ADC2=2,ADC3=3,MPY30=0!", SensorReading("7", 1, 2, 3, False)),
    ("#Sensor7:TEMP=21,ADC1=-1!", SensorReading("7", -1)),
    (f"#frame1234:{HEX_834}!", FrameWords("1234", FRAME_834)),
    (f"#frame:1234:{HEX_834.lower()}!", FrameWords("1234", FRAME_834)),
    (f"#frame:{HEX_768}!", FrameWords(None, FRAME_768)),
    (f"#frame:{spaced(FRAME_768)}!", FrameWords(None, FRAME_768)),
    (f"#frame1234:{spaced(FRAME_834)} !", FrameWords("1234", FRAME_834)),
    (f"#EEPROM1234:{HEX_832}!", Eeprom("1234", EEPROM_BYTES)),
    (f"#EEPROM:1234:{HEX_832}00000000!", Eeprom("1234", EEPROM_BYTES)),
    (f"#EEPROM:{HEX_832}!", Eeprom(None, EEPROM_BYTES)),
]
GARBAGE = [
    ("!", NO_START),
    ("hello!", NO_START),
    ("\xff\x00\xfe!", NO_START),
    ("#!", UNKNOWN_WORD),
    ("#hello:1!", UNKNOWN_WORD),
    ("#serialno:!", BAD_NAME),
    ("#serialno7!", BAD_NAME),
    ("#serialno:a\x07b!", BAD_NAME),
    ("#serialno:\xff!", BAD_NAME),
    (f"#locid:{'x' * 129}!", BAD_NAME),
    ("#Sensor!", NO_VALUE),
    ("#Sensor:!", NO_VALUE),
    ("#Sensor1234:TEMP=5!", NO_VALUE),
    ("#Sensor:ADC1=!", BAD_VALUE),
    ("#Sensor:ADC1=nan!", BAD_VALUE),
    ("#Sensor:ADC1=1e999!", BAD_VALUE),
    ("#Sensor:ADC1=1_0!", BAD_VALUE),
    ("#Sensor:ADC1=1,ADC2!", BAD_VALUE),
    ("#SensorADC1=1!", BAD_VALUE),
    ("#frame!", BAD_FRAME),
    ("#frame:!", BAD_FRAME),
    ("#frame1234:FFB8!", BAD_FRAME),
    (f"#frame1234:{HEX_834[:-1]}!", BAD_FRAME),
    (f"#frame1234:{HEX_834[:-1]}G!", BAD_FRAME),
    (f"#frame:{spaced(FRAME_768)[1:]}0!", BAD_FRAME),
    (f"#EEPROM1234:{HEX_768}!", BAD_EEPROM),
    ("#EEPROM!", BAD_EEPROM),
    (f"#EEPROM{'x' * 129}:{HEX_832}!", BAD_NAME),
]


@pytest.mark.parametrize(("line", "message"), LINES, ids=[line[:28] for line, _ in LINES])
@pytest.mark.parametrize("ending", ["", "\r\n", "\n"])
def test_every_form_of_line_is_parsed(line: str, message: Message, ending: str) -> None:
    parser = LineReader()
    assert parser.feed((line + ending).encode()) == [message]
    assert parser.feed((line + ending).encode()) == [message]


@pytest.mark.parametrize(("line", "reason"), GARBAGE, ids=[repr(line[:24]) for line, _ in GARBAGE])
def test_a_malformed_line_is_counted_and_the_next_line_is_parsed(line: str, reason: str) -> None:
    raw = line.encode("latin-1")
    messages = LineReader().feed(raw + b"\r\n#serialno:7!")
    assert messages == [Garbage(reason, len(raw) - 1), SerialNumber("7")]


def test_only_the_cut_line_is_lost_if_the_next_line_cuts_it_off() -> None:
    messages = LineReader().feed(b"#frame1234:FFB8FF#Sensor1234:ADC1=1,ADC2=2,ADC3=3,DIO=0!")
    assert messages == [Garbage(CUT_OFF, 17), SensorReading("1234", 1, 2, 3, False)]


def test_an_endless_line_is_dropped_once_and_memory_stays_bounded() -> None:
    parser = LineReader()
    messages = []
    for _ in range(64):
        messages += parser.feed(b"#frame:" + b"F" * 4089)
        assert parser.pending <= MAX_LINE
    assert messages == [Garbage(TOO_LONG, MAX_LINE)]
    assert parser.feed(b"FFFF!#serialno:7!") == [SerialNumber("7")]


@pytest.mark.parametrize("length", [MAX_LINE, MAX_LINE + 1])
def test_the_longest_line_gives_the_same_result_whole_and_in_pieces(length: int) -> None:
    line = b"x" * length
    reason = NO_START if length == MAX_LINE else TOO_LONG
    assert LineReader().feed(line + b"!") == [Garbage(reason, MAX_LINE)]
    parser = LineReader()
    assert parser.feed(line) + parser.feed(b"!") == [Garbage(reason, MAX_LINE)]


PIECES = st.one_of(
    st.sampled_from([line.encode() for line, _ in LINES]),
    st.sampled_from([line.encode("latin-1") for line, _ in GARBAGE]),
    st.binary(max_size=40),
    st.sampled_from([b"!", b"#", b"\r\n", b"#Sensor", b"=", b":", b"x" * 9000, b"#frame:" + b"F" * 20_000]),
)


@given(st.lists(PIECES, max_size=8), st.lists(st.integers(0, 60_000), max_size=12))
def test_splitting_a_stream_differently_changes_nothing(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    whole = LineReader().feed(stream)
    parser = LineReader()
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    split = [message for a, b in itertools.pairwise(bounds) for message in parser.feed(stream[a:b])]
    assert split == whole
    assert parser.pending <= MAX_LINE


def test_a_stream_fed_byte_by_byte_gives_the_same_messages() -> None:
    stream = b"\r\n".join(line.encode() for line, _ in LINES)
    parser = LineReader()
    assert [m for i in range(len(stream)) for m in parser.feed(stream[i : i + 1])] == [m for _, m in LINES]


@given(st.binary(max_size=300))
@example(b":=:=,=")
@example(b"a:ADC1=" + b"9" * 200)
@example(b"::::ADC1:=1e9999,ADC1=nan,DIO=")
@example(b"\xff\xfe:ADC1=1")
@example(b" " * 300)
@example(b"FF " * 100)
@example("\u0663:ADC1=\u0663".encode())
def test_no_bytes_make_the_parser_raise(data: bytes) -> None:
    for start in (b"", b"#Sensor", b"#frame:", b"#EEPROM1:", b"#serialno:", b"#locid:"):
        for message in LineReader().feed(start + data + b"!"):
            assert not isinstance(message, Garbage) or message.reason in REASONS


NAMES = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z_. -]{0,20}[0-9A-Za-z]", fullmatch=True)
NUMBERS = st.none() | st.integers(-10, 5000).map(float) | st.floats(allow_nan=False, allow_infinity=False)
MESSAGES = st.one_of(
    NAMES.map(SerialNumber),
    NAMES.map(LocationId),
    st.builds(SensorReading, st.none() | NAMES, NUMBERS, NUMBERS, NUMBERS, st.none() | st.booleans()).filter(
        lambda m: any(v is not None for v in (m.smoke_adc, m.flame_adc, m.gas_adc, m.flame_detected))
    ),
    st.builds(FrameWords, st.none() | NAMES, st.sampled_from([FRAME_768, FRAME_834])),
    st.builds(Eeprom, st.none() | NAMES, st.just(EEPROM_BYTES)),
)


@given(MESSAGES, st.booleans())
def test_encoding_and_parsing_a_message_gives_the_same_message(message: Message, spaced_out: bool) -> None:
    assert LineReader().feed(encode(message, spaced=spaced_out)) == [message]


def test_lines_are_written_as_by_real_devices() -> None:
    assert encode(SensorReading("1234", 277, 1304, 2, False)) == b"#Sensor1234:ADC1=277,ADC2=1304,ADC3=2,DIO=0!\r\n"
    assert encode(FrameWords("1234", FRAME_834)) == f"#frame1234:{HEX_834}!\r\n".encode()
    assert encode(Eeprom("1234", EEPROM_BYTES)) == f"#EEPROM1234:{HEX_832}!\r\n".encode()


@pytest.mark.parametrize(
    "message",
    [
        SerialNumber(""),
        SerialNumber("a!b"),
        LocationId("#1"),
        SensorReading("a=b", 1),
        SensorReading("hall"),
        SensorReading(None, float("nan")),
        FrameWords(None, bytes(10)),
        Eeprom("7", bytes(10)),
        Garbage(NO_START, 1),
    ],
    ids=repr,
)
def test_a_message_that_no_line_can_carry_is_refused(message: Message) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(message)


@given(
    st.lists(st.sampled_from([START, CALIBRATION, REQUEST]), max_size=6),
    st.lists(st.integers(0, 60)),
)
def test_commands_need_no_separators_and_may_arrive_in_pieces(words: list[str], cuts: list[int]) -> None:
    stream = "".join(words).encode()
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parser = CommandParser()
    assert [w for a, b in itertools.pairwise(bounds) for w in parser.feed(stream[a:b])] == words


def test_commands_are_found_between_other_bytes() -> None:
    assert CommandParser().feed(b"\r\nPERIOD_ON\r\nxxEEPROM1") == [START, CALIBRATION]
