"""The main flows of the console in a real Firefox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.firefox import ENTER, Firefox, run_firefox
from harness.need import FIREFOX

from embereye.camera.live import LivePictures
from embereye.levels import ZoneState
from embereye.process.tasks import beside

from .house import CAMERAS, TOKEN, House
from .test_live import NUMBER, Camera, live  # noqa: F401 # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.needs(FIREFOX), pytest.mark.timeout(300)]
STEADY = "document.querySelector('#focus:not([hidden], .moving)')"
ACKNOWLEDGE = "#focus-actions [data-action=acknowledge]"
BOX = "document.querySelector('%s').getBoundingClientRect().toJSON()"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
async def firefox(house: House) -> AsyncIterator[Firefox]:
    """A window in which an admin has signed in by keyboard."""
    async with run_firefox() as window:
        await window.resize(1440, 900)
        await sign_in(window, house)
        yield window
        assert window.problems == []


async def sign_in(window: Firefox, house: House) -> None:
    await window.open(f"{house.base}/login")
    await window.until("document.activeElement.id === 'token'")
    await window.type(TOKEN + ENTER)
    await window.until("document.querySelector('#me')?.textContent")


async def keep(window: Firefox, name: str, folder: Path) -> None:
    folder = Path(os.environ.get("EMBEREYE_SCREENSHOTS", folder))
    folder.mkdir(parents=True, exist_ok=True)
    await window.screenshot(folder / f"firefox-{name}.png")


@pytest.mark.parametrize(("width", "height", "lowest"), [(390, 844, 700), (1440, 900, 600)])
async def test_an_alarm_is_in_sight_and_acknowledged(
    house: House, firefox: Firefox, width: int, height: int, lowest: int, tmp_path: Path
) -> None:
    await house.furnish()
    await firefox.resize(width, height)
    await house.burn_before("cam-0", "kitchen")
    await firefox.until(f"{STEADY} && document.querySelector('#focus-screen').naturalWidth === 320")
    await keep(firefox, f"alarm-{width}", tmp_path)
    box = await firefox.evaluate(BOX % ACKNOWLEDGE)
    assert 0 < box["top"] < box["bottom"] < lowest
    assert await firefox.evaluate("scrollY") == 0
    assert await firefox.evaluate(WIDER) <= 0
    await firefox.click(ACKNOWLEDGE)
    await firefox.until("document.querySelector('#focus[data-state=acknowledged]')")
    assert {zone.state for zone in house.hub.zones.messages() if zone.alarm} == {ZoneState.ACKNOWLEDGED}


@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_the_page_of_a_camera_plays_its_video_or_says_why_not(
    house: House,
    firefox: Firefox,
    live: LivePictures,  # noqa: F811
    encoding: str,
    tmp_path: Path,
) -> None:
    async with beside(Camera(live, encoding).run(), name="camera"):
        await firefox.evaluate(f"(location.hash = 'device?fleet={CAMERAS}&id=cam-0')")
        await firefox.until(f"{NUMBER} >= 0")
        first = await firefox.evaluate(NUMBER)
        await firefox.until(f"![-1, {first}].includes({NUMBER})")
        type_of = {"H264": "avc1.640028", "H265": "hvc1.1.6.L120.90"}[encoding]
        plays = await firefox.evaluate(f"MediaSource.isTypeSupported('video/mp4; codecs=\"{type_of}\"')")
        why = await firefox.evaluate("document.querySelector('#device-why').textContent")
        assert (f"H.{encoding[1:]}" in why) != plays
        await keep(firefox, f"device-{encoding}", tmp_path)


async def test_the_timeline_leads_to_the_clip_of_an_alarm(house: House, firefox: Firefox, tmp_path: Path) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await firefox.until(STEADY)
    await firefox.click("nav a[href='#day']")
    await firefox.until("document.querySelector('.part[data-state=clip]')")
    await firefox.click("#day-alarm-before")
    await firefox.until("document.querySelector('#day-pictures img')?.naturalWidth")
    await firefox.click("#day-chart")
    await firefox.type("+")
    await keep(firefox, "day", tmp_path)


async def test_the_console_speaks_german(house: House, tmp_path: Path) -> None:
    await house.furnish()
    await house.burn()
    async with run_firefox("de-AT") as window:
        await sign_in(window, house)
        assert await window.evaluate("document.documentElement.lang") == "de"
        await window.until("document.querySelector('#focus-sentence').textContent.includes(' in kitchen, seit ')")
        await keep(window, "german", tmp_path)
        await window.evaluate(
            "Object.assign(document.querySelector('#language'), { value: 'en' }).dispatchEvent(new Event('change'))"
        )
        await window.until("document.documentElement.lang === 'en'")
        assert window.problems == []
