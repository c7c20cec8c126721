"""A hundred minutes of recorded clips: what the hub says of each is what a replay of its clip says."""

from __future__ import annotations

import json
import random
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from harness.need import CLIPS, FOOTAGE
from harness.settings import camera_settings

from embereye.camera.recording import Settings, watch
from embereye.camera.replay import START_NS
from embereye.hub.margins.store import MarginStore
from embereye.process.margins_call import Block, line_of
from embereye.shard.margins import DEVICE_DAY_BYTES
from embereye.units import DAY, MINUTE, SECOND
from embereye.zone.quiet import explain

if TYPE_CHECKING:
    from pathlib import Path

    from embereye.margins import Margin

pytestmark = [pytest.mark.slow, pytest.mark.needs(FOOTAGE), pytest.mark.timeout(1800)]
FLEET, SEED, MINUTES, RATE = "default/cameras/yard", 55, 100, 6.0


def replayed(clip: Path) -> list[Margin]:
    """The margins of a clip's first minute."""
    return watch(str(clip), Settings(camera_settings(), fps=RATE, most=60.0)).margins


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


async def test_the_hubs_explanation_is_that_of_a_replay(tmp_path: Path) -> None:
    draw, store = random.Random(SEED), MarginStore(tmp_path, retention_ns=DAY)
    clips = sorted(path for name in ("video", "video2") for path in (CLIPS / name).glob("*.mp4"))
    drawn = [draw.choice(clips) for _ in range(MINUTES)]
    now = time.time_ns()
    start = (now // MINUTE - MINUTES - 1) * MINUTE
    bytes_used, span_ns = 0, 0
    for number, clip in enumerate(drawn):
        margins = replayed(clip)
        content = zlib.compress(b"".join(map(line_of, margins)), 4)
        bytes_used, span_ns = bytes_used + len(content), span_ns + margins[-1]["untilNs"] - margins[0]["fromNs"]
        # The clip is shown in its minute: the hub moves the times by the difference of the clocks.
        began, sent = START_NS, now - (start + number * MINUTE) + START_NS
        await store.add(Block(FLEET, "yard-0", began, margins[-1]["untilNs"], sent, content), now)
    for number, clip in enumerate(drawn):
        at = start + number * MINUTE
        stored = await store.find(FLEET, "camera", at, at + MINUTE)
        again = replayed(clip)
        assert [as_json(margin["peaks"]) for margin in again] == [margin["peaks"] for margin in stored], clip.name
        assert [(m["fromNs"] - START_NS, m["untilNs"] - START_NS) for m in again] == [
            (m["fromNs"] - at, m["untilNs"] - at) for m in stored
        ], clip.name
        then, now_said = explain(stored), explain(as_json(again))
        assert [nearest.words for nearest in then.nearest] == [nearest.words for nearest in now_said.nearest], clip.name
        assert then.suppressed == now_said.suppressed
        assert then.nearest, clip.name
    await store.close()
    print(f"{span_ns / SECOND / 60:.1f} minutes shown, {bytes_used * DAY // span_ns:,} bytes a device-day")
    assert DEVICE_DAY_BYTES == 2_000_000
