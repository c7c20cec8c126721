"""The console plays a camera's H.264 as the camera sends it, and shows pictures where a browser cannot."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from itertools import count

import numpy as np
import pytest
from harness.browser import Browser, run_browser
from harness.eventually import eventually
from harness.need import BROWSER

from embereye.camera.clips.ring import VIDEO_RING_BYTES, Budget, ClipUnit, VideoRing
from embereye.camera.live import LivePictures
from embereye.camera.shard import OVERLOADED
from embereye.hub.actions import Action
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.frames import ThermalImage
from embereye.sensor.live import LiveThermal
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage
from embereye.wire.video.access_unit import AccessUnit
from embereye.wire.video.nal import START_CODE

from ...wire.video.coded import RATE, coded
from .house import ADA, CAMERAS, SENSORS, TOKEN, House, picture
from .link import linked

pytestmark = pytest.mark.needs(BROWSER)
WHY = "document.querySelector('#device-why').textContent"
WIDTH, HEIGHT, FRAMES = 320, 240, 256
# The number that is painted on the picture, in eight black or white fields; -1: there is no picture.
NUMBER = """(() => {
  const canvas = document.querySelector('#device-live');
  if (!canvas || canvas.classList.contains("blank")) return -1;
  const pixels = canvas.getContext("2d").getImageData(0, 20, canvas.width, 1).data;
  return [...Array(8).keys()].reduce((sum, bit) => sum + (pixels[4 * (40 * bit + 20)] > 128 ? 2 ** bit : 0), 0);
})()"""


def numbered(number: int, width: int, height: int, _: int) -> np.ndarray:
    """Draw `number` as eight fields."""
    bits = np.array([255 if number >> bit & 1 else 0 for bit in range(8)], np.uint8)
    return np.repeat(np.repeat(bits, width // 8)[None, :, None], height, 0).repeat(3, 2)


class Camera:
    """A camera whose shard sends a numbered video, at its rate, for ever."""

    def __init__(self, live: LivePictures, encoding: str) -> None:
        self.live = live
        self._encoding = encoding
        self._ring = VideoRing(Budget(VIDEO_RING_BYTES))

    async def run(self) -> None:
        """Send until cancelled."""
        options = {"width": WIDTH, "height": HEIGHT, "gop": 30, "draw": numbered}
        units = coded(self._encoding, FRAMES, **options)
        began, number = time.monotonic(), 0
        while True:
            _, nals = units[number % FRAMES]
            data = b"".join(START_CODE + nal for nal in nals)
            unit = ClipUnit(
                now_ns(), AccessUnit(data, 0, (WIDTH, HEIGHT), number % FRAMES % 30 == 0, encoding=self._encoding)
            )
            self._ring.add(unit, 5 * SECOND)
            self.live.offer_video("cam-0", unit, self._ring)
            if number % 8 == 0 and self.live.is_picture_wanted("cam-0", self._encoding):
                self.live.offer("cam-0", picture(number), now_ns(), self._encoding)
            number += 1
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))


# A thermal picture on a page has a hottest pixel in this column; -1: it shows none.
COLUMN = """(() => {
  const canvas = document.querySelector('#%s');
  if (!canvas || canvas.hidden) return -1;
  const pixels = canvas.getContext("2d").getImageData(0, 10, canvas.width, 1).data, size = canvas.width / 32;
  const red = [...Array(32).keys()].map((column) => pixels[4 * Math.floor((column + 0.5) * size)]);
  return red.indexOf(Math.max(...red));
})()"""


@pytest.fixture
async def live(house: House) -> AsyncIterator[LivePictures]:
    """The live pictures of the cameras' shard, connected to the hub."""
    await house.furnish()
    pictures = LivePictures()
    shard = pictures.run(Links(house.control), lambda: Coverage(fleet=CAMERAS, shard="yard-0"))
    async with beside(shard, name="shard"):
        yield pictures


async def shown_number(browser: Browser) -> int:
    """The number on the picture that the page shows now; -1: there is none."""
    number: int = await browser.ask("evaluate", script=NUMBER)
    return number


@contextlib.asynccontextmanager
async def hot_sensor(house: House) -> AsyncIterator[LiveThermal]:
    """Run a shard with a thermal sensor of 16 frames a second; the hot column moves with each."""
    live = LiveThermal()
    shard = live.run(Links(house.control), lambda: Coverage(fleet=SENSORS, shard="hall-0"))

    async def burn() -> None:
        for number in count():
            pixels = np.full((24, 32), 21, np.float32)
            pixels[:, number % 32] = 60
            live.offer("s-00000", ThermalImage(pixels, relative=False), now_ns())
            await asyncio.sleep(1 / 16)

    async with beside(shard, name="shard"), beside(burn(), name="sensor"):
        yield live


async def see_columns(browser: Browser, canvas: str) -> None:
    """Wait until the hot column was drawn at twelve places; shards report no more than one of them a second."""
    columns = set[int]()
    while len(columns) < 12:
        columns.add(await browser.ask("evaluate", script=COLUMN % canvas))


async def test_thermal_frames_are_drawn_as_they_come(house: House, browser: Browser) -> None:
    await house.furnish()
    async with hot_sensor(house) as live:
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={SENSORS}&id=s-00000'")
        await eventually(lambda: "s-00000" in live.wanted)
        await see_columns(browser, "device-thermal")
        await browser.until("document.querySelector('#device-age').textContent === 'live'")
        await browser.ask("evaluate", script="location.hash = 'now'")
        await eventually(lambda: "s-00000" not in live.wanted)
        assert await browser.ask("problems") == []


@pytest.mark.parametrize(
    ("cameras", "canvas", "caption"), [(3, "focus-thermal", "focus-sensor"), (0, "focus-heat", "focus-camera")]
)
async def test_the_alarm_in_focus_draws_thermal_frames_as_they_come(
    house: House, browser: Browser, cameras: int, canvas: str, caption: str
) -> None:
    await house.furnish(cameras=cameras)
    async with hot_sensor(house) as live:
        await house.burn()
        await eventually(lambda: "s-00000" in live.wanted)
        await see_columns(browser, canvas)
        await browser.until(f"document.querySelector('#{caption}').textContent === 's-00000wall 0live'")
        # With the alarm, its live picture ends, too.
        await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
        await house.hub.actions.perform(Action.RESET, ADA, "default", "kitchen")
        await eventually(lambda: "s-00000" not in live.wanted)
        assert await browser.ask("problems") == []


async def test_a_video_plays_in_the_console(house: House, browser: Browser, live: LivePictures) -> None:
    async with beside(Camera(live, "H264").run(), name="camera"):
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
        await browser.until(f"{NUMBER} >= 0")
        numbers = set[int]()
        for _ in range(40):
            numbers.add(await shown_number(browser))
            await asyncio.sleep(0.05)
        assert len(numbers) > 5
        assert await browser.text("#device-why") == ""
        assert await browser.ask("problems") == []


# Timers for more than three seconds do not fire if their delay is random, as the pauses between two attempts are.
NO_LONG_PAUSES = """{
  const real = window.setTimeout;
  window.setTimeout = (action, delay, ...rest) => {
    if (delay < 3000 || Number.isInteger(delay)) return real(action, delay, ...rest);
    window.paused = true;
    return real(action, 2 ** 30);
  };
}"""


@pytest.mark.slow
async def test_live_pictures_are_back_with_the_hub_and_not_after_a_long_pause(house: House, live: LivePictures) -> None:
    async with linked(house.base) as link, run_browser() as browser, beside(Camera(live, "H264").run(), name="camera"):
        await browser.sign_in(link.base, TOKEN, before=NO_LONG_PAUSES)
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
        await browser.until(f"{NUMBER} >= 0")
        link.refuse()
        await browser.until(f"{NUMBER} < 0 && window.paused")
        link.mend()
        await browser.until(f"{NUMBER} >= 0")


async def test_a_browser_that_cannot_play_the_video_shows_pictures_and_says_so(
    house: House, browser: Browser, live: LivePictures
) -> None:
    async with beside(Camera(live, "H265").run(), name="camera"):
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
        await browser.until(f"{NUMBER} >= 0")
        await browser.until("document.querySelector('#device-why').textContent.includes('H.265')")


async def test_the_page_of_an_alarm_plays_the_video_of_the_burning_camera(
    house: House, browser: Browser, live: LivePictures
) -> None:
    number = NUMBER.replace("#device-live", "#focus-live")
    async with beside(Camera(live, "H264").run(), name="camera"):
        await house.burn_before("cam-0", "kitchen")
        await browser.until(f"{number} >= 0")
        first = await browser.ask("evaluate", script=number)
        await browser.until(f"{number} !== {first}")
        assert await browser.text("#focus-none") == ""
        if folder := os.environ.get("EMBEREYE_SCREENSHOTS"):
            await browser.ask("screenshot", path=f"{folder}/alarm-video.png")


async def photograph(live: LivePictures) -> None:
    """Send JPEGs of cam-0 until cancelled."""
    for number in count():
        live.offer("cam-0", picture(number), now_ns())
        await asyncio.sleep(0.1)


async def test_a_page_says_that_an_overloaded_shard_shows_no_live_pictures(
    house: House, browser: Browser, live: LivePictures
) -> None:
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    async with beside(Camera(live, "H265").run(), name="camera"):
        await browser.until(f"{NUMBER} >= 0 && {WHY}.includes('H.265')")
        live.pause(OVERLOADED)
        await browser.until(f"{WHY}.startsWith('Not live: its shard is overloaded, and detection comes first.')")
        await browser.until("document.querySelector('#device-age').textContent.endsWith(' old')")
    live.pause("")
    async with beside(photograph(live), name="camera"):  # it sends JPEG now, of which the hub names no encoding
        await browser.until(f"{NUMBER} >= 0 && {WHY} === ''")
    assert await browser.ask("problems") == []


@pytest.mark.parametrize(
    ("reason", "words", "page"),
    [
        (OVERLOADED, "nicht live: Shard überlastet", "Nicht live: sein Shard ist überlastet"),
        (
            "its shard shows 16 devices already. Close one.",
            "nicht live: sein Shard zeigt schon 16 Geräte. Schließen Sie eines.",
            "Nicht live: sein Shard zeigt schon 16 Geräte.",
        ),
    ],
)
async def test_the_alarm_and_the_wall_say_in_german_why_a_camera_is_not_live(
    house: House, browser: Browser, live: LivePictures, reason: str, words: str, page: str
) -> None:
    live.pause(reason)
    await browser.sign_in(house.base, TOKEN, locale="de-AT")
    async with beside(photograph(live), name="camera"):
        await house.burn_before("cam-0", "kitchen")
        caption = "document.querySelector('#focus-camera')"
        await browser.until(f"{caption}.textContent.startsWith('cam-0{words} · ceiling')")
        await browser.until(f"{caption}.querySelector('.age').textContent.endsWith(' alt')")
        await browser.ask("evaluate", script="location.hash = 'wall'")
        await browser.until(f"document.querySelector('#wall .caption')?.textContent.includes(' · {words}')")
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
        await browser.until(f"{WHY}.startsWith('{page}')")
        assert await browser.ask("axe") == []


# A picture is decoded only when the test calls `decode`.
DECODE_LATER = """{
  const real = window.createImageBitmap;
  window.createImageBitmap = async (...given) => {
    await new Promise((done) => { window.decode = done; });
    return real(...given);
  };
}"""
# True if something is drawn on the canvas within a moment after the picture is decoded.
DRAWN = """(async () => {
  const canvas = document.querySelector("#device-live"), { drawImage } = CanvasRenderingContext2D.prototype;
  let drawn = false;
  CanvasRenderingContext2D.prototype.drawImage = function draw(...given) {
    drawn ||= this.canvas === canvas;
    return drawImage.apply(this, given);
  };
  window.decode();
  await new Promise((done) => setTimeout(done, 200));
  return drawn;
})()"""


async def test_a_picture_that_was_decoded_late_is_not_drawn_as_that_of_another_camera(
    house: House, browser: Browser, live: LivePictures
) -> None:
    await browser.ask("evaluate", script=DECODE_LATER)
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    async with beside(photograph(live), name="camera"):
        await browser.until("window.decode")
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-1'")
        title, body = (f"document.querySelector('#device-{name}')" for name in ("title", "body"))
        await browser.until(f"{title}.textContent === 'cam-1' && !{body}.hidden")
        await eventually(lambda: "cam-1" in live.wanted and "cam-0" not in live.wanted)
        assert await browser.ask("evaluate", script=DRAWN) is False


@pytest.mark.slow
async def test_live_pictures_are_back_after_connections_ended_without_notice(house: House, live: LivePictures) -> None:
    async with linked(house.base) as link, run_browser() as browser, beside(Camera(live, "H264").run(), name="camera"):
        await browser.sign_in(link.base, TOKEN)
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
        await browser.until(f"{NUMBER} >= 0")
        link.cut()
        await browser.until(f"{NUMBER} < 0 && document.querySelector('#verdict-word').textContent === 'UNKNOWN'")
        link.mend()
        await browser.until(f"{NUMBER} >= 0")


# Counts the live connections that the page opens.
COUNTED = """{
  const Real = window.WebSocket;
  window.WebSocket = class extends Real {
    constructor(address) {
      super(address);
      window.opened += address.includes("/live?");
    }
  };
}"""


@pytest.mark.slow
async def test_a_live_connection_that_brings_nothing_is_opened_again(house: House, live: LivePictures) -> None:
    async with linked(house.base) as link, run_browser() as browser, beside(Camera(live, "H264").run(), name="camera"):
        await browser.sign_in(link.base, TOKEN, before=COUNTED)
        link.swallow(b"/live?")
        page = f"device?fleet={CAMERAS}&id=cam-0"
        await browser.ask("evaluate", script=f"window.opened = 0; location.hash = '{page}'")
        await browser.until("window.opened")
        await asyncio.sleep(0.5)
        link.swallow(b"")
        assert await browser.ask("evaluate", script=NUMBER) == -1
        await browser.until(f"{NUMBER} >= 0")


async def test_a_video_that_is_closed_before_it_opens_leaves_no_address(browser: Browser) -> None:
    script = """(async () => {
      const { openPlayer, closePlayer } = await import("/static/player.js"), addresses = new Set();
      const { createObjectURL, revokeObjectURL } = URL;
      URL.createObjectURL = (source) => {
        const address = createObjectURL(source);
        addresses.add(address);
        return address;
      };
      URL.revokeObjectURL = (address) => { addresses.delete(address); revokeObjectURL(address); };
      closePlayer(openPlayer(() => {}, () => {}));
      return addresses.size;
    })()"""
    assert await browser.ask("evaluate", script=script) == 0
