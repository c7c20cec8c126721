"""The page of one device in a real Chromium."""

import time
import zlib

import pytest
import yaml
from harness.browser import Browser
from harness.need import BROWSER

from embereye.hub.actions import Action
from embereye.levels import Kind, Level
from embereye.margins import Margin
from embereye.process.margins_call import Block, line_of
from embereye.units import MINUTE, SECOND
from embereye.v1.evidence_pb2 import Judged, Region
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Area, Device, Mask, Term

from .house import ADA, CAMERAS, SENSORS, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)


async def test_a_tile_opens_the_page_of_its_device(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    tile = "[...document.querySelectorAll('.view a.whole')].find((link) => link.innerText === 'cam-0')"
    await browser.until(tile)
    await browser.ask("evaluate", script=f"{tile}.click()")
    await browser.until("location.hash === '#device?fleet=default%2Fcameras%2Fyard&id=cam-0'")
    await browser.until("document.querySelector('#device-picture').naturalWidth === 320")
    await browser.until("document.querySelector('#device-state').innerText.startsWith('Watched')")
    await browser.until("document.querySelector('#device-events').innerText.includes('flame 1.6 s')")
    await browser.until("document.querySelector('#device-hour path')?.getAttribute('d')")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_dark_devices_and_zones_lead_to_their_pages(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.until("document.querySelectorAll('#coverage-dark li').length === 2")
    assert await browser.text("#coverage-dark li") == "s-00006: no shard reports it"
    await browser.ask("click", selector="#coverage-dark a")
    await browser.until("document.querySelector('#device-title').innerText === 's-00006'")
    await browser.ask("goto", url=f"{house.base}/#now")
    tile = "[...document.querySelectorAll('.zone a')].find((link) => link.innerText === 'hall')"
    await browser.until(tile)
    await browser.ask("evaluate", script=f"{tile}.closest('.zone').id = 'tile'")
    await browser.ask("click", selector="#tile")
    await browser.until("location.hash === '#devices?text=zone%3Adefault%2Fhall'")
    rows = "[...document.querySelectorAll('#devices tr td:nth-child(2)')].map((cell) => cell.innerText)"
    await browser.until(f"{rows}.length === 4 && {rows}.every((zone) => zone.startsWith('hall'))")
    await browser.ask("click", selector="#devices a.device")
    await browser.until("location.hash.startsWith('#device?')")
    await browser.ask("evaluate", script="history.back()")
    await browser.until("document.querySelector('#filter').value === 'zone:default/hall'")
    await browser.ask("click", selector="nav a[href='#devices']")
    await browser.until(f"document.querySelector('#filter').value === '' && {rows}.length === 11")
    assert await browser.ask("problems") == []


async def test_the_alarm_leads_to_its_devices_and_a_burning_zone_to_its_alarm(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-1", "hall")
    await house.burn("kitchen", device="s-00000")
    name = "document.querySelector('#focus-name').textContent"
    await browser.until(f"{name} === 'hall' && document.querySelectorAll('.zone[data-state=alarm]').length === 2")
    tile = "[...document.querySelectorAll('.zone a')].find((link) => link.textContent === 'kitchen')"
    await browser.ask("evaluate", script=f"{tile}.click()")
    await browser.until(f"{name} === 'kitchen' && location.hash !== '#devices'")
    await browser.until("document.querySelector('#focus-sensor a').textContent === 's-00000'")
    await browser.until("document.querySelector('.view[data-state=alarm] .caption').innerText.includes('ALARM · ')")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#focus-sensor a")
    await browser.until("document.querySelector('#device-title').innerText === 's-00000'")


async def test_the_page_has_clips_the_day_the_login_and_a_test(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    await browser.until("document.querySelector('#device-clips li')?.innerText.includes('cam-0')")
    await browser.ask("select", selector="#device-span", value="day")
    await browser.until("document.querySelector('#device-hour path')?.getAttribute('d')")
    assert "Login\nnone" in await browser.text("#device-facts")
    await browser.ask("click", selector="#device-test")
    await browser.until("document.querySelector('#ask').open")
    await browser.ask("click", selector="#ask-ok")
    await browser.until("document.querySelector('#device-test').innerText.startsWith('End test of ')")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_the_present_masks_are_drawn_and_the_dialog_begins_with_them(house: House, browser: Browser) -> None:
    await house.furnish()
    street, desk = (Mask(x=[left, 0.4, 0.4], y=[0.1, 0.1, 0.5]) for left in (0.1, 0.2))
    camera = Device(
        id="cam-0", zone="kitchen", source="rtsp://10.0.0.9/live", credentials="yard", masks=[street],
        privacy_masks=[desk], areas=[Area(name="stove", limit=80, outline=street)],
    )  # fmt: skip
    roster = FleetRoster(fleet=CAMERAS, epoch=2, deadline_ns=5 * SECOND, devices=[camera])
    await house.hub.coverage.set_roster(roster)
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    await browser.until("document.querySelectorAll('#device-regions polygon').length === 3")
    captions = "[...document.querySelectorAll('#device-regions text')].map((text) => text.textContent).join()"
    assert await browser.ask("evaluate", script=captions) == "not analysed,hidden,stove (limit 80 °C)"
    assert "Login\nyard" in await browser.text("#device-facts")
    await browser.ask("click", selector="#device-masks")
    (listed,) = yaml.safe_load(await browser.text("#masks-lines"))
    assert listed["masks"] == [
        {"points": [{"left": 0.1, "top": 0.1}, {"left": 0.4, "top": 0.1}, {"left": 0.4, "top": 0.5}]}
    ]
    assert len(listed["privacyMasks"]) == 1


async def test_people_see_what_the_detectors_see(house: House, browser: Browser) -> None:
    flame = Judged(
        kind=Kind.FLAME.wire, level=Level.PRE_ALARM.wire, score=0.93, threshold=0.5,
        nearest=Term(name="flame.lasted", value=0.9, threshold=1.5, unit="s"),
        region=Region(x=0.4, y=0.4, width=0.2, height=0.3, area=0.06),
        why=[Term(name="flame.flicker", value=8, unit="Hz")],
    )  # fmt: skip
    house.judged["cam-0"] = [flame, Judged(kind=Kind.SMOKE.wire, level=Level.CLEAR.wire, score=0.04, threshold=0.4)]
    await house.furnish()
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    await browser.until("document.querySelector('#device-picture').naturalWidth === 320")
    assert await browser.ask("evaluate", script="document.querySelector('#device-regions').childElementCount") == 0
    await browser.ask("click", selector="#device-judged")
    await browser.until("document.querySelector('#judged').childElementCount === 2")
    captions = "[...document.querySelectorAll('#device-regions text')].map((text) => text.textContent)"
    assert await browser.ask("evaluate", script=captions) == ["flame: score 0.93 of 0.5, pre-alarm"]
    words = await browser.text("#judged")
    assert "flame: Flame lasted 0.9 s of 1.5 s: 0.6 s short, 60 % of the limit" in words
    assert "Flame flicker 8 Hz" in words
    assert "smoke: score 0.04 of 0.4" in words
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#device-judged")
    await browser.until("document.querySelector('#device-judgement').hidden")
    assert await browser.ask("problems") == []


async def test_a_dark_device_has_its_reason_and_a_remedy(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("goto", url=f"{house.base}/#device?fleet=default/sensors/hall&id=s-00007")
    await browser.until("document.querySelector('#device-state').innerText.includes('no shard reports it')")
    assert "The Fleets page shows the shards." in await browser.text("#device-state")
    assert "It has offered no data yet." in await browser.text("#device-ledger")
    await browser.ask("evaluate", script="location.hash = 'device?fleet=default/sensors/hall&id=s-00000'")
    await browser.until("document.querySelector('#device-title').innerText === 's-00000'")
    await browser.until("document.querySelector('#device-ledger').innerText.includes('98 were analysed.')")
    await browser.until("!document.querySelector('#device-thermal').hidden")


async def test_measuring_areas_are_drawn_in_the_thermal_picture(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("goto", url=f"{house.base}/#device?fleet=default/sensors/hall&id=s-00000")
    await browser.until("!document.querySelector('#device-thermal')?.hidden")
    # The outline's left edge is cyan, a colour that the false colours lack.
    pixel = "[...document.querySelector('#device-thermal').getContext('2d').getImageData(32, 350, 1, 1).data]"
    await browser.until(f"{pixel}.join() === '0,255,255,255'")


async def test_a_minute_without_an_alarm_is_explained(house: House, browser: Browser) -> None:
    await house.furnish()
    at = (time.time_ns() // MINUTE - 5) * MINUTE
    margin: Margin = {
        "device": "s-00000", "fromNs": at, "untilNs": at + 5 * SECOND, "analysed": 20, "shed": {"queue full": 2},
        "peaks": [{"kind": "heat", "level": "clear", "score": 0.1, "nearest": ("temperature.max", 61.2, 90.0, "°C")}],
    }  # fmt: skip
    block = Block(SENSORS, "hall-0", at, at + 5 * SECOND, at, zlib.compress(line_of(margin)))
    await house.margins.add(block, at)
    await browser.ask("goto", url=f"{house.base}/#device?fleet={SENSORS}&id=s-00000")
    await browser.until("!document.querySelector('#device-body').hidden")
    assert await browser.text("#quiet-note") == "Choose a minute to see how near this device was to an alarm."

    async def ask(minute_ns: int) -> None:
        script = (
            f"(() => {{ const at = new Date({minute_ns // 10**6}), pad = (n) => String(n).padStart(2, '0');"
            "document.querySelector('#quiet-at').value = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-"
            "${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}`;"
            "document.querySelector('#quiet button').click(); })()"
        )
        await browser.ask("evaluate", script=script)

    await ask(at)
    nearest = "document.querySelector('#quiet-nearest').innerText"
    await browser.until(f"{nearest}.includes('61.2 °C of 90 °C: 28.8 K short, 68 % of the limit')")
    assert "Shed: 2 frames or readings not analysed: queue full" in await browser.text("#quiet-suppressed")
    await browser.until("!document.querySelector('#quiet-more').hidden")
    assert await browser.ask("axe") == []
    await ask(at - 10 * MINUTE)
    await browser.until("document.querySelector('#quiet-note').innerText.startsWith('Nothing is stored for this')")
    await browser.until(f"{nearest} === ''")
    assert await browser.ask("problems") == []


async def test_the_device_page_fits_on_a_phone(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.sign_in(house.base, TOKEN, width=320, height=640)
    await browser.ask("evaluate", script="location.hash = 'device?fleet=default/cameras/yard&id=cam-0'")
    await browser.until("!document.querySelector('#device-body').hidden")
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await browser.ask("evaluate", script=wider) <= 0


async def test_masks_are_drawn_on_the_picture_by_mouse_and_keyboard(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    await browser.until("!document.querySelector('#device-masks').hidden")
    await browser.ask("click", selector="#device-masks")
    await browser.until("document.querySelector('#masks-picture').naturalWidth > 0")
    drawing = "document.querySelector('#masks-drawing')"
    for left, top in ((0.1, 0.1), (0.5, 0.1), (0.5, 0.6)):
        place = f"{{ clientX: box.left + {left} * box.width, clientY: box.top + {top} * box.height }}"
        click = f"{drawing}.dispatchEvent(new MouseEvent('click', {place}))"
        await browser.ask("evaluate", script=f"(() => {{ const box = {drawing}.getBoundingClientRect(); {click}; }})()")
    await browser.ask("click", selector="#masks-close-shape")
    await browser.ask("evaluate", script=f"{drawing}.focus()")
    await browser.ask("click", selector="#masks-private")
    await browser.ask("evaluate", script=f"{drawing}.focus()")
    for key in ("ArrowLeft", "Enter", "ArrowUp", "Enter", "ArrowRight", "Enter", "Backspace", "Enter", "Space"):
        await browser.ask("press", key=key)
    (camera,) = yaml.safe_load(await browser.text("#masks-lines"))
    assert camera["id"] == "cam-0"
    (drawn,), (typed,) = ([mask["points"] for mask in camera[name]] for name in ("masks", "privacyMasks"))
    assert [(round(point["left"], 1), round(point["top"], 1)) for point in drawn] == [
        (0.1, 0.1),
        (0.5, 0.1),
        (0.5, 0.6),
    ]
    assert typed == [{"left": 0.48, "top": 0.5}, {"left": 0.48, "top": 0.48}, {"left": 0.5, "top": 0.48}]
    assert await browser.ask("axe") == []


async def test_measuring_areas_are_drawn_with_name_and_limit(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("goto", url=f"{house.base}/#device?fleet=default/sensors/hall&id=s-00000")
    await browser.until("!document.querySelector('#device-areas').hidden")
    await browser.ask("click", selector="#device-areas")
    pixel = "document.querySelector('#masks-thermal').getContext('2d').getImageData(9, 9, 1, 1).data[3]"
    await browser.until(f"{pixel} > 0 && document.querySelector('#masks-lines').innerText.includes('belt')")
    drawing = "document.querySelector('#masks-drawing').focus()"
    for name, limit in (("belt: 2", "80"), ("pile", "60.5")):
        await browser.ask("fill", selector="#masks-name", text=name)
        await browser.ask("fill", selector="#masks-limit", text=limit)
        await browser.ask("evaluate", script=drawing)
        for key in ("ArrowLeft", "Enter", "ArrowUp", "Enter", "ArrowRight", "Enter", "Space"):
            await browser.ask("press", key=key)
    (sensor,) = yaml.safe_load(await browser.text("#masks-lines"))
    assert sensor["id"] == "s-00000"
    assert [(area["name"], area["limit"], area["kind"]) for area in sensor["areas"]] == [
        ("belt", 80, "highest"), ("belt: 2", 80, "highest"), ("pile", 60.5, "highest"),
    ]  # fmt: skip
    assert [len(area["points"]) for area in sensor["areas"]] == [4, 3, 3]
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_the_range_of_a_value_includes_the_present_one(house: House, browser: Browser) -> None:
    await house.furnish()
    house.celsius["s-00000"] = 31.5
    await browser.ask("evaluate", script="location.hash = 'device?fleet=default/sensors/hall&id=s-00000'")
    first = "document.querySelector('#device-hour .hour')"
    await browser.until(f"{first}?.querySelector('.now').textContent === '31.5 °C'")
    assert (await browser.text("#device-hour .hour .aside")).endswith("to 31.5 °C")


async def test_a_picture_from_before_a_start_of_the_hub_is_not_shown_as_a_current_one(
    house: House, browser: Browser
) -> None:
    await house.furnish()
    image = "document.querySelector('#device-picture')"
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    await browser.until(f"{image}.naturalWidth === 320 && !{image}.hidden")
    house.pause()
    declared = house.hub.coverage.book.find(CAMERAS, "cam-0")
    assert declared
    declared[1].picture, declared[1].picture_ns = b"", 0  # a hub that has just started has none
    await browser.until(f"{image}.hidden")
    assert await browser.text("#device-none") == "This device has sent no picture."


async def test_events_of_other_zones_are_not_listed_as_those_of_a_device(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await house.burn("hall", device="s-00001")
    for action in (Action.ACKNOWLEDGE, Action.RESET):
        await house.hub.actions.perform(action, ADA, "default", "hall")
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id=cam-0'")
    await browser.until("document.querySelector('#device-events').innerText.includes('flame 1.6 s')")
    assert "hall" not in await browser.text("#device-events")
