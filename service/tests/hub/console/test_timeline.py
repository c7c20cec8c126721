"""The chart of a day as a timeline, in a real Chromium: zoom, thumbnails, alarms of other days, playing, export."""

import hashlib
import io
import time
import zipfile

import pytest
from harness.browser import Browser
from harness.need import BROWSER

from embereye.units import DAY, SECOND

from .house import House

pytestmark = pytest.mark.needs(BROWSER)
SLIDER = "document.querySelector('#day-at')"
WIDTH = f"({SLIDER}.max - {SLIDER}.min)"  # seconds
TRACK = "document.querySelector('.track')"


def wheel(delta: int, **more: object) -> str:
    """A turn of the wheel in the middle of a track."""
    extra = "".join(f", {name}: {str(value).lower()}" for name, value in more.items())
    place = f"clientX: {TRACK}.getBoundingClientRect().left + {TRACK}.clientWidth / 2"
    options = f"{{ deltaY: {delta}, {place}{extra}, bubbles: true, cancelable: true }}"
    return f"{TRACK}.dispatchEvent(new WheelEvent('wheel', {options}))"


async def open_day(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelector('.part[data-state=clip]')")


async def test_the_wheel_zooms_and_the_slider_spans_the_chart(house: House, browser: Browser) -> None:
    await open_day(house, browser)
    whole = await browser.ask("evaluate", script=WIDTH)
    assert whole > 80_000
    await browser.ask("evaluate", script=wheel(-700))
    await browser.until(f"{WIDTH} < {whole / 3}")
    assert await browser.ask("evaluate", script="document.querySelector('#day-span').value") == ""
    narrow = await browser.ask("evaluate", script=WIDTH)
    begin = int(await browser.ask("evaluate", script=f"{SLIDER}.min"))
    await browser.ask("evaluate", script=wheel(200, shiftKey=True))
    await browser.until(f"{SLIDER}.min > {begin}")
    assert abs(await browser.ask("evaluate", script=WIDTH) - narrow) <= 1
    await browser.ask("evaluate", script=wheel(5000))
    await browser.until(f"{WIDTH} === {whole}")
    await browser.ask("evaluate", script="document.querySelector('#day-chart').focus()")
    await browser.ask("press", key="+")
    await browser.until(f"{WIDTH} < {whole * 0.6}")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_two_fingers_zoom(house: House, browser: Browser) -> None:
    await open_day(house, browser)
    whole = await browser.ask("evaluate", script=WIDTH)
    touch = (
        "(name, id, x) => { track.setPointerCapture = () => {}; track.dispatchEvent(new PointerEvent(name, "
        "{ pointerId: id, clientX: x, clientY: 0, bubbles: true })); }"
    )
    moves = "touch('pointerdown', 1, 600); touch('pointerdown', 2, 700); touch('pointermove', 2, 1000)"
    ends = "touch('pointerup', 1, 600); touch('pointerup', 2, 1000)"
    await browser.ask("evaluate", script=f"{{ const track = {TRACK}, touch = {touch}; {moves}; {ends}; }} 0")
    await browser.until(f"{WIDTH} < {whole / 3}")


# The labels of the scale that overlap the next one.
OVERLAPPING = """[...document.querySelectorAll('#day-scale li')].filter((label) => {
  const next = label.nextElementSibling;
  return next && label.getBoundingClientRect().right > next.getBoundingClientRect().left;
}).map((label) => label.textContent)"""


async def test_the_labels_of_the_scale_never_overlap(house: House, browser: Browser) -> None:
    await open_day(house, browser)
    labels = "document.querySelectorAll('#day-scale li').length"
    assert await browser.ask("evaluate", script=f"{labels} >= 9"), "a label for each three hours"
    for width in (1440, 768, 360, 320):
        await browser.ask("look", width=width, height=700, scheme="light")
        await browser.until(f"!{OVERLAPPING}.length")
        assert await browser.ask("evaluate", script=f"{labels} >= 2"), width


async def test_a_thumbnail_leads_to_its_moment_and_the_address_names_it(house: House, browser: Browser) -> None:
    await open_day(house, browser)
    await browser.until("document.querySelector('#day-thumbnails img')?.naturalWidth === 320")
    await browser.ask("evaluate", script="document.querySelector('#day-thumbnails button').click()")
    await browser.until("document.querySelector('#day-pictures img')?.naturalWidth === 320")
    await browser.until("location.hash.startsWith('#day?at=')")
    address = await browser.ask("evaluate", script="location.href")
    await browser.ask("goto", url=f"{house.base}/#now")
    await browser.ask("goto", url=address)
    await browser.until("document.querySelector('#day-pictures img')?.naturalWidth === 320")


async def test_the_clips_of_a_moment_play_together(house: House, browser: Browser) -> None:
    await open_day(house, browser)
    await browser.until("document.querySelector('#day-thumbnails button')")
    await browser.ask("evaluate", script="document.querySelector('#day-thumbnails button').click()")
    await browser.until("document.querySelector('#day-pictures img')?.naturalWidth === 320")
    first = int(await browser.ask("evaluate", script=f"{SLIDER}.value"))
    await browser.ask("click", selector="#day-play")
    await browser.until(f"{SLIDER}.value > {first}")
    await browser.ask("click", selector="#day-play")
    assert await browser.text("#day-play") == "Play"


async def test_alarms_of_other_days_are_reached(house: House, browser: Browser) -> None:
    await house.furnish()
    alarm = await house.burn()
    await browser.ask("evaluate", script=f"location.hash = 'day?at={(time.time_ns() + 3 * DAY) // 1_000_000}'")
    await browser.until("document.querySelector('#day-date').value")
    other = await browser.ask("evaluate", script="document.querySelector('#day-date').value")
    await browser.ask("click", selector="#day-alarm-before")
    await browser.until(f"document.querySelector('#day-date').value !== '{other}'")
    await browser.until("document.querySelector('#day-states [data-state=alarm]')")
    await browser.ask("click", selector="#day-alarm-before")
    await browser.until("document.querySelector('#toast').innerText === 'There is no earlier alarm.'")
    assert alarm


async def test_the_visible_part_is_exported(house: House, browser: Browser) -> None:
    await open_day(house, browser)
    address = await browser.ask("evaluate", script="document.querySelector('#day-export').href")
    async with house.session.get(address) as response:
        archive = zipfile.ZipFile(io.BytesIO(await response.read()))
    assert archive.testzip() is None
    digest, name = archive.read("SHA256SUMS").decode().split()
    assert hashlib.sha256(archive.read(name)).hexdigest() == digest
    assert name.startswith("clips/2")
    assert name.endswith(f"_kitchen_cam-0_{digest[:8]}.mkv")
    assert archive.read("events.jsonl").count(b"\n") >= 1
    since, until = (int(part.partition("=")[2]) for part in address.partition("?")[2].split("&"))
    assert 0 < until - since <= DAY + SECOND
