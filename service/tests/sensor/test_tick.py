"""The tick, without a shard around it."""

from collections.abc import Sequence

import pytest

from embereye.detect.sensing.bands import BandTable
from embereye.sensor.tick import TickBatcher
from embereye.wire.device.messages import Message
from embereye.wire.device.reader import LineReader, Rows


class Source:
    def __init__(self) -> None:
        self.queued = False
        self.reader = LineReader()
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def handle_lines(self, items: Sequence[Message | Rows], now_ns: int) -> None:
        pass


async def test_sessions_resume_reading_even_if_their_lines_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    batcher = TickBatcher(BandTable(), lambda *_: None)
    sources = [Source(), Source()]
    for source in sources:
        source.reader.receive(b"#Sensor:ADC1=1!")
        batcher.add(source, source.reader.waiting)

    def fail(_: int) -> None:
        raise MemoryError

    monkeypatch.setattr(batcher, "analyse_collected", fail)
    with pytest.raises(MemoryError):
        batcher.flush()
    assert not any(source.paused for source in sources)
    assert batcher.waiting == 0
