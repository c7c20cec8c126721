import asyncio
from collections.abc import AsyncIterator

import pytest

from embereye.client.alarms import SilentError, listen
from embereye.v1.alarms_pb2 import AlarmEvent

ALIVE = AlarmEvent(type=AlarmEvent.TYPE_ALIVE, cursor=1)
ALARM = AlarmEvent(type=AlarmEvent.TYPE_STATE, cursor=2)


async def feed(*events: AlarmEvent, then: float) -> AsyncIterator[AlarmEvent]:
    for event in events:
        yield event
    await asyncio.sleep(then)


async def test_a_feed_that_falls_silent_raises_an_error() -> None:
    heard = listen(feed(ALIVE, ALARM, then=60), 0.05)
    assert [await anext(heard), await anext(heard)] == [ALIVE, ALARM]
    with pytest.raises(SilentError, match=r"the hub has sent nothing for 0\.05 s"):
        await anext(heard)


async def test_a_hub_that_sends_no_signs_of_life_is_never_silent() -> None:
    assert [event async for event in listen(feed(ALARM, then=0.2), 0.05)] == [ALARM]
