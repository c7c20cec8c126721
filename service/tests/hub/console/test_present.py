"""The console in a real Chromium shows the present state, and says what it does not know."""

import asyncio
import time

import cv2
import numpy as np
import pytest
from harness.browser import Browser
from harness.need import BROWSER

from embereye.hub.actions import Action
from embereye.hub.http import past
from embereye.hub.http.fleets import lists
from embereye.hub.plans.images import make_plan_image
from embereye.hub.roles import Principal, Role, read_scope
from embereye.hub.tables.overlays import Overlay
from embereye.hub.tables.plans import Place
from embereye.levels import Kind, Level, Sense
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

from .house import ADA, CAMERAS, SENSORS, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)
HOUR_MS = 3_600_000
AN_HOUR_BACK = f"{{ const now = Date.now; Date.now = () => now() - {HOUR_MS}; }}"
ADMIN = Principal("admin", Role.ADMIN, "admin")
ASKED = "performance.getEntriesByType('resource').filter(({ name }) => name.includes(%r)).length"


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ("devices", "&offset="),
        pytest.param("fleets", "/v1/fleets", marks=pytest.mark.slow),
        pytest.param("plan", "/v1/plans", marks=pytest.mark.slow),
    ],
)
async def test_a_page_keeps_updating_when_the_clock_is_set_back(
    house: House, browser: Browser, page: str, path: str
) -> None:
    await house.furnish()
    await browser.ask("evaluate", script=f"location.hash = '{page}'")
    await browser.until(ASKED % path)
    await browser.ask("evaluate", script=AN_HOUR_BACK)
    await browser.ask("evaluate", script="performance.clearResourceTimings()")
    await browser.until(f"{ASKED % path} >= 2")


async def test_an_outage_and_its_end_are_shown_although_the_clock_is_set_back(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.until("document.querySelector('#verdict-word').textContent === 'FAULT'")
    gone = "window.answering = window.fetch; window.fetch = () => Promise.reject(new TypeError('gone'))"
    await browser.ask("evaluate", script=f"{{ {gone}; }} {AN_HOUR_BACK}")
    await browser.until("document.querySelector('#verdict-word').textContent === 'UNKNOWN'")
    assert "unreachable" in await browser.text("#banner")
    await browser.ask("evaluate", script="window.fetch = window.answering; 0")
    await browser.until("document.querySelector('#verdict-word').textContent === 'FAULT'")
    await browser.until("document.querySelector('#banner').hidden")


@pytest.mark.parametrize("ahead", [pytest.param(-HOUR_MS, marks=pytest.mark.slow), HOUR_MS])
async def test_a_day_starts_by_the_hubs_clock_not_the_browsers(house: House, browser: Browser, ahead: int) -> None:
    await house.furnish()
    await browser.sign_in(house.base, TOKEN, clock=ahead)
    await browser.ask("goto", url="about:blank")
    await browser.ask("goto", url=f"{house.base}/#day")
    await browser.until("document.querySelectorAll('.lane').length")
    now = time.localtime()
    shown = int(await browser.ask("evaluate", script="document.querySelector('#day-at').value"))
    apart = abs(shown - (3600 * now.tm_hour + 60 * now.tm_min + now.tm_sec))
    assert min(apart, 86_400 - apart) < HOUR_MS / 2000, "half an hour, in seconds"


async def test_an_unwatched_zone_is_not_called_normal(house: House, browser: Browser) -> None:
    await house.furnish(sensors=3, cameras=3, dark=1)
    await browser.until("document.querySelectorAll('.zone.faulty').length === 1")
    assert (await browser.text(".zone.faulty .state")).lower() == "fault"
    await house.burn("stairs", device="cam-2")
    await browser.until("document.querySelector('.zone[data-state=alarm]')")
    assert (await browser.text(".zone[data-state=alarm] .state")).lower() == "alarm · fault"


async def test_a_failed_or_empty_list_of_devices_is_explained(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices-count').textContent === '11'")
    await browser.ask("fill", selector="#filter", text="cellar")
    await browser.until("document.querySelector('#devices-count').textContent === 'No device matches.'")
    await browser.ask("fill", selector="#filter", text="")
    failing = "path.includes('&offset=') ? Promise.reject(new Error('the disk is gone')) : answering(path, options)"
    script = f"{{ const answering = window.fetch; window.fetch = (path, options) => {failing}; }}"
    await browser.ask("evaluate", script=script)
    await browser.until("document.querySelector('#devices-count').textContent.includes('the disk is gone')")


async def test_a_pre_alarm_without_a_picture_becomes_an_alarm_with_one(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.suspect("cam-0", "kitchen")
    await browser.until("document.querySelector('.alarm .signs .what')?.textContent.startsWith('flame')")
    await browser.until(ASKED % "/clips")
    await house.burn_before("cam-0", "kitchen")
    await browser.until("document.querySelector('.alarm .pictures img')?.naturalWidth === 320")
    assert await browser.ask("problems") == []


async def test_a_sign_without_a_measurement_has_no_score_of_0(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await browser.until("document.querySelector('.alarm .signs .what')?.textContent.startsWith('flame 1.6 s')")
    await house.lose_sight("cam-0", "kitchen")
    await browser.until("!document.querySelector('.alarm .signs .what').textContent.startsWith('flame 1.6 s')")
    assert await browser.text(".alarm .signs .what") == "flame at cam-0"


async def test_a_rise_over_the_usual_level_is_not_shown_as_a_temperature(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await browser.until("document.querySelector('.alarm .signs .what')?.textContent.startsWith('heat 61.3 °C')")
    await house.cool_down("s-00000", "kitchen")
    await browser.until("!document.querySelector('.alarm .signs .what').textContent.startsWith('heat 61.3 °C')")
    assert await browser.text(".alarm .signs .what") == "heat 11.2 K over normal (limit 10 K) at s-00000"


async def test_on_a_phone_every_page_is_named_and_the_verdict_is_complete(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.sign_in(house.base, TOKEN, width=390, height=844)
    await browser.until("document.querySelector('#verdict-word').textContent === 'FAULT'")
    links = "[...document.querySelectorAll('nav a')].map((link) => link.getBoundingClientRect().right)"
    assert max(await browser.ask("evaluate", script=links)) <= 390
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("!document.querySelector('#page-day').hidden")
    await asyncio.sleep(0.1)
    hidden = "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('#verdict-detail'))"
    assert await browser.ask("evaluate", script=hidden) <= 0


async def test_a_person_with_limits_sees_their_zones_and_no_error(house: House, browser: Browser) -> None:
    await house.furnish(dark=0)
    token = await house.hub.access.create_token(ADMIN, "cook", Role.OPERATOR, read_scope(["default/kitchen"]))
    await browser.sign_in(house.base, token)
    await browser.until("document.querySelector('nav a[href=\"#fleets\"]').hidden")
    for zone, device in (("stairs", "s-00002"), ("kitchen", "s-00000")):
        await house.burn(zone, device=device)
    await browser.until("document.querySelector('#verdict-word').textContent === 'ALARM · kitchen'")
    await browser.ask("click", selector="#focus:not(.moving) [data-action=acknowledge]")
    await browser.until("document.querySelector('#focus[data-state=acknowledged]')")
    for page in ("day", "history", "plan", "devices", "wall"):
        await browser.ask("evaluate", script=f"location.hash = '{page}'")
        await browser.until(f"!document.querySelector('#page-{page}').hidden")
        await asyncio.sleep(0.5)
        shown = await browser.text("main")
        assert "stairs" not in shown, page
        assert "limited to" not in shown, page
    assert await browser.ask("problems") == []


async def test_rates_are_shown_per_second(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices').textContent.includes('fps 15/s')")


async def test_events_remain_visible_while_the_list_of_zones_is_older(
    house: House, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = "document.querySelector('#events').children.length"
    note = f"() => {{ window.fewest = Math.min(window.fewest, {events}); }}"
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    verdict = "document.querySelector('#verdict-word').textContent"
    await browser.until(f"{verdict} === 'ALARM · kitchen' && {events} > 0")
    shown = await browser.ask("evaluate", script=events)
    await browser.ask("evaluate", script=f"window.fewest = {shown}")
    observe = f"new MutationObserver({note}).observe(document.querySelector('#events'), {{ childList: true }})"
    await browser.ask("evaluate", script=observe)
    monkeypatch.setattr(lists, "SLICE_SECONDS", 0.0)  # as if each of a few zones were a hundred
    monkeypatch.setattr(lists, "REST", 1e9)
    async with house.session.get(f"{house.base}/v1/zones") as response:
        before = (await response.json())["cursor"]
    await house.burn("hall", device="s-00001")
    async with house.session.get(f"{house.base}/v1/zones") as response:
        assert (await response.json())["cursor"] == before
    await browser.ask("evaluate", script="performance.clearResourceTimings()")
    await browser.until(f"{ASKED % '/v1/zones'} >= 3")
    monkeypatch.setattr(lists, "REST", 0.0)
    await browser.until(f"{verdict} === 'ALARM · hall, kitchen'")
    assert await browser.ask("evaluate", script="window.fewest") == shown


async def test_zones_with_the_same_name_are_shown_with_their_namespace(house: House, browser: Browser) -> None:
    await house.furnish(dark=0)
    annex = FleetRoster(fleet="annex/sensors/hall", epoch=1, devices=[Device(id="s-9", zone="kitchen")])
    await house.hub.coverage.set_roster(annex)
    now = time.time_ns()
    item = EvidenceItem(
        id="e", episode="e", fleet=annex.fleet, device="s-9", zone="kitchen", kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip
    house.hub.inbox.admit(item, lambda _: None)
    await browser.until("document.querySelector('#verdict-word').textContent === 'ALARM · kitchen (annex)'")
    assert await browser.text("#alarm-list h3") == "kitchen (annex)"
    heads = "[...document.querySelectorAll('#events .head')].map(({ innerText }) => innerText)"
    await browser.until(f"{heads}.includes('kitchen (annex)ALARM')")
    await browser.until("document.querySelector('#focus:not(.moving)')")
    await browser.ask("click", selector="[aria-label='Explain the alarm in kitchen (annex)']")
    await browser.until("document.querySelector('#alarm').open")
    assert await browser.text("#alarm-title") == "Alarm in kitchen (annex)"
    await browser.ask("click", selector="#alarm-close")
    await browser.ask("evaluate", script="location.hash = 'history'")
    await browser.until("document.querySelector('#past-alarms th')")
    assert await browser.text("#past-alarms th") == "kitchen (annex)"
    await browser.ask("evaluate", script="location.hash = 'day'")
    lanes = "[...document.querySelectorAll('#day-lanes .name')].map(({ innerText }) => innerText)"
    await browser.until(f"{lanes}.includes('kitchen (annex)')")


async def test_simultaneous_events_are_drawn_together(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.until("document.querySelector('#verdict-word').textContent === 'FAULT'")
    count = "new MutationObserver(() => { window.drawn += 1; })"
    observe = f"window.drawn = 0; {count}.observe(document.querySelector('#events'), {{ childList: true }})"
    await browser.ask("evaluate", script=observe)
    many = [
        AlarmEvent(namespace="default", zone="hall", type=AlarmEvent.TYPE_FAULT, why=f"no {n}") for n in range(1000)
    ]
    await house.hub.committer.commit(lambda draft: house.hub.zones.add_events(draft, many))
    await browser.until("document.querySelector('#events .why')?.innerText === 'no 999'")
    assert await browser.ask("evaluate", script="window.drawn") < 500


async def test_a_moment_of_a_partly_loaded_day_is_not_called_quiet(
    house: House, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.furnish(dark=0)
    await house.hub.actions.perform(Action.TEST, ADA, "default", "kitchen")
    quiet = "document.querySelector('#day-quiet').innerText"
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until(f"{quiet} === 'No alarm, and every device was watched.'")
    monkeypatch.setattr(past, "MAX_TIMELINE_EVENTS", 0)
    await browser.ask("click", selector="#day-today")
    await browser.until("document.querySelector('#day-note').innerText.includes('Too many events')")
    assert await browser.ask("evaluate", script=quiet) == "Nothing is known about this time."


async def test_at_a_moment_an_alarm_is_listed_before_dark_devices(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.until("document.querySelector('#verdict-word').textContent === 'FAULT'")
    await house.burn("kitchen", device="s-00000")
    await browser.until("/^for [1-9]/.test(document.querySelector('.zone[data-state=alarm] .facts')?.innerText)")
    await browser.ask("evaluate", script="location.hash = 'day'")
    looks = "[...document.querySelectorAll('#day-states li')].map((item) => item.dataset.state).join()"
    await browser.until(f"{looks}.includes('alarm')")
    assert await browser.ask("evaluate", script=looks) == "alarm,fault,fault"


async def test_the_table_shows_the_remaining_devices_when_most_are_gone(house: House, browser: Browser) -> None:
    await house.furnish(sensors=300, cameras=0, dark=0)
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices-count').textContent === '300'")
    await browser.ask("evaluate", script="document.querySelector('#devices-scroll').scrollTop = 34 * 280")
    await browser.until("document.querySelector('#devices tr:last-child th').textContent === 's-00299'")
    await house.furnish(sensors=3, cameras=0, dark=0)
    await browser.until("document.querySelector('#devices-count').textContent === '3'")
    await browser.until("document.querySelectorAll('#devices tr').length === 3")
    assert await browser.ask("problems") == []


async def test_an_old_thermal_picture_is_not_laid_over_a_new_picture(house: House, browser: Browser) -> None:
    await house.furnish(sensors=2, cameras=1, dark=0)
    await house.hub.overlays.store(ADA, (CAMERAS, "cam-0"), Overlay(SENSORS, "s-00000", 0.5, 0.5, 0.6, 0.6))
    canvas = "document.querySelector('.view .thermal')"
    drawn = f"{canvas}?.getContext('2d').getImageData(0, 0, 320, 240).data.some(Boolean)"
    await browser.until(drawn)
    await house.furnish(sensors=2, cameras=1, dark=2)
    declared = house.hub.coverage.book.find(SENSORS, "s-00000")
    assert declared
    declared[1].thermal_ns -= 120 * SECOND
    await browser.until(f"{canvas} && !{drawn}")


async def test_the_details_of_a_device_on_a_plan_are_updated(house: House, browser: Browser) -> None:
    await house.furnish()
    pixels = bytes(cv2.imencode(".png", np.full((60, 100, 3), 255, np.uint8))[1])
    await house.hub.plans.store(ADA, "Hall", await make_plan_image(pixels))
    for device, key in (("s-00000", (SENSORS, "s-00000")), ("cam-0", (CAMERAS, "cam-0"))):
        await house.hub.plans.place(ADA, "Hall", key, Place(0.3 if device == "cam-0" else 0.7, 0.5))
    await browser.ask("evaluate", script="location.hash = 'plan'")
    picture = "document.querySelector('#plan-picture')"
    await browser.until("document.querySelectorAll('.marker').length === 2")
    await browser.ask("click", selector=".marker[aria-label^='cam-0, ']")
    await browser.until(f"{picture}.naturalWidth === 320")
    first = await browser.ask("evaluate", script=f"{picture}.src")
    await browser.until(f"{picture}.src !== '{first}' && {picture}.naturalWidth === 320")
    await browser.ask("click", selector=".marker[aria-label^='s-00000, ']")
    detail = "document.querySelector('#plan-detail').innerText"
    await browser.until(f"{detail} === 's-00000, kitchen: watched' && {picture}.hidden")
    await house.furnish(dark=8)
    await browser.until(f"{detail}.startsWith('s-00000, kitchen: dark, ')")


async def test_drawing_many_zones_takes_a_single_pass_over_them(house: House, browser: Browser) -> None:
    await house.furnish_zones(100)
    await browser.until("document.querySelectorAll('.zone').length === 100")
    count = """{
      const own = Array.prototype.flatMap;
      window.passes = 0;
      Array.prototype.flatMap = function (...given) { window.passes += 1; return own.apply(this, given); };
      performance.clearResourceTimings();
    }"""
    await browser.ask("evaluate", script=count)
    await browser.until(f"{ASKED % '/v1/zones'} >= 2")
    assert await browser.ask("evaluate", script="window.passes") < 100


async def test_drawing_a_plan_takes_a_single_pass_over_the_zones(house: House, browser: Browser) -> None:
    await house.furnish(sensors=200)
    pixels = bytes(cv2.imencode(".png", np.full((60, 100, 3), 255, np.uint8))[1])
    await house.hub.plans.store(ADA, "Hall", await make_plan_image(pixels))
    keys = [(SENSORS, f"s-{number:05}") for number in range(200)]
    await asyncio.gather(*(house.hub.plans.place(ADA, "Hall", key, Place(0.5, 0.5)) for key in keys))
    await browser.ask("evaluate", script="location.hash = 'plan'")
    await browser.until("document.querySelectorAll('.marker').length === 200")
    count = """{
      window.maps = 0;
      window.Map = class extends Map { constructor(...given) { super(...given); window.maps += 1; } };
      document.querySelector('#plan-edit').click();
      window.maps;
    }"""
    assert 0 < await browser.ask("evaluate", script=count) < 50


async def test_pictures_that_left_the_page_are_released(house: House, browser: Browser) -> None:
    await house.furnish(cameras=1)
    await browser.until("document.querySelector('.view img')?.naturalWidth")
    await browser.ask("evaluate", script="window.first = new WeakRef(document.querySelector('.view img')); 0")
    async with asyncio.timeout(60):
        while await browser.ask("evaluate", script="Boolean(window.first.deref())"):
            await asyncio.sleep(1)
            await browser.ask("collect")


async def test_a_chosen_camera_is_on_the_wall_also_among_hundreds(house: House, browser: Browser) -> None:
    devices = [Device(id=f"cam-{number:03}", zone="yard") for number in range(210)]
    await house.hub.coverage.set_roster(FleetRoster(fleet=CAMERAS, epoch=1, deadline_ns=5 * SECOND, devices=devices))
    await browser.ask("evaluate", script=f"location.hash = 'wall?cameras={CAMERAS}/cam-209'")
    names = "[...document.querySelectorAll('#wall .cell b')].map((name) => name.textContent)"
    await browser.until(f"{names}.join() === 'cam-209'")
    assert await browser.text("#wall-note") == "1 of 210"
