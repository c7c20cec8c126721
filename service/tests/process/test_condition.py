import asyncio
import logging

import pytest
from harness.eventually import eventually

from embereye.process.condition import Condition
from embereye.process.repeat import repeat

logger = logging.getLogger("test")


def test_a_failure_is_logged_once_per_reason_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failing = Condition(logger, begin=logging.ERROR, end=logging.INFO)
    failing.clear("%s works again", "it")
    for why in ("full", "full", "broken", "full"):
        failing.fail(why, "cannot write %s: %s", "it", why)
    assert (bool(failing), failing.why) == (True, "full")
    failing.clear("%s works again", "it")
    failing.clear("%s works again", "it")
    assert not failing
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "cannot write it: full"),
        (logging.ERROR, "cannot write it: broken"),
        (logging.ERROR, "cannot write it: full"),
        (logging.INFO, "it works again"),
    ]


def test_changed_reasons_can_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    failing = Condition(logger, first_only=True)
    assert [failing.fail(why, "%s", why) for why in ("14 % free", "13 % free")] == [True, False]
    assert failing.why == "13 % free"
    assert caplog.messages == ["14 % free"]


async def test_periodic_work_survives_errors_and_is_woken_early(caplog: pytest.LogCaptureFixture) -> None:
    wake, errors = asyncio.Event(), [ValueError("a"), ValueError("a"), KeyError(), None, ValueError("a"), None]
    done = 0

    async def work() -> None:
        nonlocal done
        done += 1
        if errors and (error := errors.pop(0)):
            raise error

    failing = Condition(logger)
    task = asyncio.ensure_future(repeat(work, 1000, failing, "failed: %s", wake=wake, expected=(KeyError,)))
    for number in range(6):
        await eventually(lambda number=number: done > number)
        wake.set()
    await eventually(lambda: done > 6)
    task.cancel()
    assert caplog.messages == ["failed: a", "failed: a"]
    assert not failing


def test_a_failure_without_a_text_is_logged_once_too(caplog: pytest.LogCaptureFixture) -> None:
    failing = Condition(logger)
    assert [failing.fail("", "cannot read it: %s", "") for _ in range(3)] == [True, False, False]
    assert (bool(failing), len(caplog.records)) == (True, 1)
