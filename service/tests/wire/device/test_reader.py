"""All ways of reading a line, fast or slow, ahead or not, alone or with others, give the same messages."""

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embereye.wire.device.encode import encode
from embereye.wire.device.lines import parse_line
from embereye.wire.device.messages import TOO_LONG, FrameWords, Garbage, Message, SensorReading
from embereye.wire.device.quiet import quiet_reading
from embereye.wire.device.reader import MAX_LINE, NOTHING, LineReader, Rows, read_together

BANDS = ((0.0, 614.25), (0.0, 2252.2), (0.0, 1200.0), (-0.5, 0.5))
NAMES = ("", "a", ":a", "hall-2", ":0x1F")


def regular(name: str, dice: random.Random) -> bytes:
    smoke, flame, gas = dice.choice([0, 283, 614, 615, 99_999]), dice.randint(1300, 1310), dice.choice([2, 400, 1500])
    digital = dice.choice(["DIO=0", "DIO=0", "DIO=1", "MPY30=0", "DIO:=0"])
    end = dice.choice(["!\r\n", "!\r\n", "!", "!\n", "! \r\n"])
    return f"#Sensor{name}:ADC1={smoke},ADC2={flame},ADC3={gas},{digital}{end}".encode()


def line(name: str, dice: random.Random) -> bytes:
    kind = dice.random()
    if kind < 0.75:
        return regular(name, dice)
    strange = [b"rubbish!", b"!", b"\r\n", b" ", b"#", b"#serialno:b!\r\n", b"#frame:12!", b"#Sensor:ADC1=x!"]
    strange += [
        b"#Sensor:ADC3:=1!",
        b"#Sensora:ADC1=007,ADC2=1,ADC3=1,DIO=0!",
        b"#Sensora:ADC1=1.5,ADC2=1,ADC3=1,DIO=0!",
    ]
    strange += [b"#Sensora:ADC1=12345678,ADC2=1,ADC3=1,DIO=0!", b"x" * MAX_LINE + b"!", b"x" * (MAX_LINE + 1) + b"!"]
    strange += [encode(FrameWords("a", bytes(1536))), b"#Sensora:ADC1=1#Sensora:ADC1=1,ADC2=1,ADC3=1,DIO=0!"]
    return dice.choice(strange)


def stream(seed: int) -> bytes:
    dice = random.Random(seed)
    names = dice.choice([("a",), ("",), NAMES])
    return b"".join(line(dice.choice(names), dice) for _ in range(dice.randint(0, 30)))


def line_by_line(text: bytes) -> list[Message]:
    """The messages in `text`, parsed line by line: the reference for all other ways."""
    *lines, rest = text.split(b"!")
    messages: list[Message] = []
    for text_line in lines:
        if len(text_line.lstrip()) > MAX_LINE:
            messages.append(Garbage(TOO_LONG, MAX_LINE))
        else:
            parse_line(text_line, messages)
    if len(rest.lstrip()) > MAX_LINE:
        messages.append(Garbage(TOO_LONG, MAX_LINE))
    return messages


def expand_rows(items: list[Message | Rows]) -> list[Message]:
    return [message for item in items for message in (item.readings() if isinstance(item, Rows) else [item])]


def deliver(texts: list[bytes], dice: random.Random, largest: int, ways: set[str]) -> list[list[Message]]:
    """Split streams at random, read them at random times and by random ways; return the messages of each."""
    readers = [LineReader() for _ in texts]
    messages: list[list[Message]] = [[] for _ in texts]

    def read() -> None:
        for stream_messages, items in zip(messages, read_together(readers), strict=True):
            stream_messages.extend(expand_rows(items))
        for reader in readers:
            known = reader.shape is not None and dice.random() < 0.8
            reader.expect(reader.shape.prefix if reader.shape and known else NOTHING)
            assert not reader.waiting
            assert reader.pending <= MAX_LINE

    quiet = quiet_reading(BANDS).match if "quiet" in ways else None
    remaining = list(texts)
    while any(remaining):
        number = dice.randrange(len(texts))
        reader, size = readers[number], dice.randint(1, largest)
        # Devices write one or a few lines at a time: the fast way needs cuts at the end of lines.
        whole = 0
        for _ in range(dice.choice((0, 0, 1, 1, 3))):
            whole = remaining[number].find(b"\n", whole) + 1 or whole
        size = whole or size
        data, remaining[number] = remaining[number][:size], remaining[number][size:]
        expected, quiet_match = reader.shape, quiet if data else None
        if matches := reader.receive(data, quiet_match):
            assert expected is not None
            for match in matches:
                smoke, flame, gas, digital = map(float, match.groups())
                messages[number].append(SensorReading(expected.location or None, smoke, flame, gas, digital != 0))
        elif "ahead" in ways and dice.random() < 0.3:
            reader.parse_ahead()
        if dice.random() < 0.3:
            read()
    read()
    return messages


@settings(max_examples=300, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 100_000), min_size=1, max_size=4),
    cuts=st.integers(0, 100_000),
    largest=st.sampled_from([1, 40, 400, 100_000]),
    ways=st.sets(st.sampled_from(["quiet", "ahead"])),
)
@example(seeds=[1, 2], cuts=1, largest=40, ways={"quiet", "ahead"})
def test_every_way_of_reading_a_stream_gives_the_same_messages(
    seeds: list[int], cuts: int, largest: int, ways: set[str]
) -> None:
    texts = [stream(seed) for seed in seeds]
    if largest == 1:
        texts = [text[:2000] for text in texts]
    assert deliver(texts, random.Random(cuts), largest, ways) == [line_by_line(text) for text in texts]


LINE = b"#Sensora:ADC1=283,ADC2=1305,ADC3=2,DIO=0!\r\n"
READING = SensorReading("a", 283, 1305, 2, False)


def test_regular_lines_become_rows_once_their_shape_is_known() -> None:
    reader = LineReader()
    assert reader.feed(LINE) == [READING]
    reader.receive(LINE * 3)
    [[rows]] = read_together([reader])
    assert isinstance(rows, Rows)
    assert rows.location == "a"
    assert rows.values.tolist() == [[283, 1305, 2, 0]] * 3


def test_a_quiet_line_is_not_stored_and_any_other_line_waits() -> None:
    quiet = quiet_reading(BANDS).match
    reader = LineReader()
    assert not reader.receive(LINE, quiet), "its shape is not known yet"
    assert reader.read() == [READING]
    reader.expect(b"#Sensora:")
    (match,) = reader.receive(LINE, quiet)
    assert match.groups() == (b"283", b"1305", b"2", b"0")
    assert reader.waiting == 0
    loud = LINE.replace(b"283", b"700")
    assert not reader.receive(loud, quiet)
    assert not reader.receive(LINE, quiet), "it must not overtake the previous line"
    assert reader.waiting == len(loud) + len(LINE)


def test_quiet_lines_of_a_read_all_match_unless_one_of_them_is_loud() -> None:
    quiet = quiet_reading(BANDS).match
    reader = LineReader()
    reader.expect(b"#Sensora:")
    other = LINE.replace(b"283", b"284").rstrip()
    assert [match[1] for match in reader.receive(LINE + other + LINE, quiet)] == [b"283", b"284", b"283"]
    assert reader.waiting == 0
    mixed = LINE + LINE.replace(b"283", b"700") + LINE
    assert not reader.receive(mixed, quiet)
    assert reader.waiting == len(mixed)


@pytest.mark.parametrize("data", [LINE + LINE[:20], LINE + b"#Sensorb" + LINE[8:], LINE + b"x", LINE * 100])
def test_a_read_with_anything_but_a_few_expected_lines_waits(data: bytes) -> None:
    reader = LineReader()
    reader.expect(b"#Sensora:")
    assert not reader.receive(data, quiet_reading(BANDS).match)
    assert reader.waiting == len(data)


def test_a_quiet_line_inside_a_dropped_line_is_skipped() -> None:
    reader = LineReader()
    assert reader.feed(b"#frame:" + b"F" * MAX_LINE) == [Garbage(TOO_LONG, MAX_LINE)]
    reader.expect(b"#Sensora:")
    assert not reader.receive(LINE, quiet_reading(BANDS).match)
    assert reader.read() == []
    assert reader.receive(LINE, quiet_reading(BANDS).match)


def test_lines_parsed_ahead_are_read_once_and_in_order() -> None:
    reader = LineReader()
    reader.receive(LINE)
    assert reader.parse_ahead() == [READING]
    assert reader.parse_ahead() == []
    reader.receive(b"#serialno:b!" + LINE[:10])
    waiting = reader.waiting
    assert waiting == len(LINE) + 22
    assert [type(item).__name__ for item in itertools.chain(*read_together([reader]))] == [
        "SensorReading",
        "SerialNumber",
    ]
    assert (reader.waiting, reader.pending) == (0, 10)
    assert reader.feed(LINE[10:]) == [READING]
