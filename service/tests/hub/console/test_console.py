"""The console in a real Chromium: its pages, its actions, and their accessibility (axe)."""

import asyncio
import os
import re
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from harness.browser import Browser
from harness.eventually import eventually
from harness.need import BROWSER

from embereye.hub.access.keeper import add_entry
from embereye.hub.actions import Action
from embereye.hub.committer import Draft
from embereye.hub.plans.images import make_plan_image
from embereye.hub.roles import Role
from embereye.hub.tables.plans import Place
from embereye.process.candidates_call import CandidateReport, DifferenceRow
from embereye.units import DAY, SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, Ledger
from embereye.v1.roster_pb2 import FleetRoster, FleetScaling, ScaleChange, ShardLoad
from embereye.v1.shard_pb2 import Load
from embereye.v1.types_pb2 import Device

from .house import ADA, CAMERAS, SENSORS, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)
PAGES = ("now", "day", "history", "plan", "devices", "fleets", "figures", "wall")
# What the dialog of a clip cuts off in both directions, and the place of the video.
CUT_OFF = """(({ scrollWidth, clientWidth, scrollHeight, clientHeight }) =>
  [scrollWidth - clientWidth, scrollHeight - clientHeight])(document.querySelector("#viewer"))"""
VIDEO = """(({ left, right, width }) => [left, right, width])(
  document.querySelector("#viewer-video").getBoundingClientRect())"""
SCREENSHOTS = os.environ.get("EMBEREYE_SCREENSHOTS", "")  # a folder for screenshots


async def save_screenshot(browser: Browser, name: str) -> None:
    if SCREENSHOTS:
        await browser.ask("screenshot", path=str(Path(SCREENSHOTS) / f"{name}.png"))


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_every_page_passes_axe_and_has_no_error(house: House, browser: Browser, scheme: str) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await house.burn("hall", device="s-00001")
    await browser.sign_in(house.base, TOKEN, scheme=scheme)
    problems: dict[str, list[str]] = {}
    for name in PAGES:
        await browser.ask("evaluate", script=f"location.hash = '{name}'")
        await browser.until(f"!document.querySelector('#page-{name}').hidden")
        await asyncio.sleep(2.5)
        await save_screenshot(browser, f"{name}-{scheme}")
        problems[name] = await browser.ask("axe")
    problems["problems"] = await browser.ask("problems")
    print(*[f"{name}: {text}" for name, texts in problems.items() for text in texts], sep="\n")
    assert problems == {name: [] for name in [*PAGES, "problems"]}


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_the_sign_in_page_and_the_audit_trail_pass_axe(house: House, browser: Browser, scheme: str) -> None:
    await house.hub.committer.commit(lambda draft: add_entry(draft, ADA, "try", "the trail"))
    await browser.ask("open", url=f"{house.base}/login?ended", scheme=scheme, width=320, height=640)
    await browser.until("document.querySelector('#problem').checkVisibility()")
    await save_screenshot(browser, f"login-{scheme}")
    assert await browser.ask("axe") == []
    await browser.sign_in(house.base, TOKEN, scheme=scheme)
    await browser.until("!document.querySelector('#audit-open').hidden")
    await browser.ask("click", selector="#audit-open")
    await browser.until("document.querySelector('#audit-entries tr')")
    await save_screenshot(browser, f"audit-{scheme}")
    assert await browser.ask("axe") == []


async def test_a_page_whose_scripts_do_not_arrive_gives_no_all_clear(house: House) -> None:
    async with house.session.get(house.base) as response:
        shown = re.sub("<script.*?</script>", "", await response.text(), flags=re.DOTALL)
    assert "Loading …" in shown
    assert "No alarm is open" not in shown
    assert "No fleet is known" not in shown


async def test_an_alarm_is_marked_as_false_and_unmarked(house: House, browser: Browser) -> None:
    await house.furnish()
    alarm = await house.burn()
    await browser.until("document.querySelector('#focus:not([hidden], .moving)')")
    await browser.ask("click", selector=".alarm [data-action=false]")
    await browser.ask("fill", selector="#ask-note", text="steam from the kettle")
    await save_screenshot(browser, "ask")
    await browser.ask("click", selector="#ask-ok")
    await browser.until("document.querySelector('.alarm .marked')?.textContent.includes('steam from the kettle')")
    mark = house.hub.false_alarms.find(alarm)
    assert mark is not None
    assert mark.reason == "steam from the kettle"
    await browser.ask("click", selector=".alarm [data-action=explain]")
    await browser.until("document.querySelector('#alarm').open")
    await save_screenshot(browser, "alarm")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#alarm-mark")
    await browser.until("document.querySelector('#alarm-marked').hidden")
    assert house.hub.false_alarms.find(alarm) is None


async def test_a_day_is_scrubbed_frame_by_frame(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelectorAll('.lane').length >= 1")
    await browser.ask("click", selector="#day-previous")
    await browser.until("document.querySelector('#day-pictures img')?.naturalWidth === 320")
    first = await browser.ask("evaluate", script="document.querySelector('#day-pictures img').src")
    await browser.ask("evaluate", script="document.querySelector('#day-at').focus()")
    await browser.ask("press", key="ArrowRight")
    await browser.until(f"document.querySelector('#day-pictures img')?.src !== '{first}'")
    await save_screenshot(browser, "scrub")
    assert await browser.ask("problems") == []


async def test_a_day_shows_the_pictures_of_two_cameras_with_the_same_name(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    (clip,) = await house.clips.newest(1)
    await house.record("cam-0", "kitchen", "e", clip.from_ns - SECOND, fleet="default/cameras/roof")
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelectorAll('.part[data-state=clip]').length === 2")
    await browser.ask("click", selector="#day-previous")
    await browser.until("document.querySelectorAll('#day-pictures img').length === 2")


async def test_a_day_is_selected_by_typing_it(house: House, browser: Browser) -> None:
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelector('#day-date').value")
    await browser.ask("evaluate", script="document.querySelector('#day-date').focus()")
    await browser.ask("type", text="11272025")
    assert await browser.ask("evaluate", script="document.querySelector('#day-date').value") == "2025-11-27"


async def test_a_clip_plays_until_its_dialog_is_closed(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    clip = await house.film("cam-0", "kitchen")
    video = "document.querySelector('#viewer-video')"
    play = f"document.querySelector('.alarm .clips a[href=\"{clip}\"]')"
    await browser.until(play)
    await browser.ask("evaluate", script=f"{play}.previousSibling.click()")
    await browser.until(f"{video}.currentTime > 0")
    await browser.ask("click", selector="#viewer-close")
    await browser.until(f"{video}.networkState === HTMLMediaElement.NETWORK_EMPTY")


@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (1440, 900)])
async def test_a_large_clip_is_whole_in_its_dialog(house: House, browser: Browser, width: int, height: int) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    clip = await house.film("cam-0", "kitchen", (1280, 720))
    await browser.ask("look", width=width, height=height, scheme="dark")
    play = f"document.querySelector('.alarm .clips a[href=\"{clip}\"]')"
    await browser.until(play)
    await browser.ask("evaluate", script=f"{play}.previousSibling.click()")
    await browser.until("document.querySelector('#viewer-video').videoWidth === 1280")
    await save_screenshot(browser, f"clip-{width}")
    assert await browser.ask("evaluate", script=CUT_OFF) == [0, 0]
    left, right, wide = await browser.ask("evaluate", script=VIDEO)
    assert 0 <= left < right <= width
    assert wide > 0.6 * min(width, height), "as large as the window permits"
    assert await browser.ask("axe") == []


async def test_older_entries_of_the_audit_trail_are_shown_once(house: House, browser: Browser) -> None:
    def step(draft: Draft) -> None:
        for number in range(250):
            add_entry(draft, ADA, "try", f"number {number}")

    await house.hub.committer.commit(step)
    await browser.until("!document.querySelector('#audit-open').hidden")
    await browser.ask("click", selector="#audit-open")
    rows = "document.querySelectorAll('#audit-entries tr').length"
    await browser.until(f"{rows} === 100")
    older = "document.querySelector('#audit-more')"
    await browser.ask("evaluate", script=f"{older}.click(); {older}.click()")
    await browser.until(f"{rows} > 100 && !{older}.disabled")
    assert await browser.ask("evaluate", script=rows) == 200


async def test_ten_thousand_devices_are_a_table_of_a_few_rows(house: House, browser: Browser) -> None:
    await house.furnish(sensors=10_000, dark=3)
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices-count').textContent === '10003'")
    await browser.until("document.querySelector('#devices tr.unwatched')")
    assert "s-09997" in await browser.text("#devices tr:first-child"), "the dark ones first"
    rows = "document.querySelectorAll('#devices tr').length"
    assert await browser.ask("evaluate", script=rows) < 80
    await browser.ask("evaluate", script="document.querySelector('#devices-scroll').scrollTop = 34 * 9000")
    await browser.until("document.querySelector('#devices tr th').textContent.startsWith('s-0')")
    assert await browser.ask("evaluate", script=rows) < 80
    await save_screenshot(browser, "devices-10000")
    await browser.ask("fill", selector="#filter", text="s-04711")
    await browser.until("document.querySelector('#devices-count').textContent === '1'")
    assert "s-04711" in await browser.text("#devices")


async def test_the_console_is_usable_on_a_phone(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn()
    await browser.sign_in(house.base, TOKEN, width=390, height=844)
    for name in PAGES:
        await browser.ask("evaluate", script=f"location.hash = '{name}'")
        await asyncio.sleep(1.5)
        await save_screenshot(browser, f"{name}-phone")
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await browser.ask("evaluate", script=wider) <= 0, f"{name} is wider than the screen"


async def test_a_zone_is_silenced_with_a_reason_shown_everywhere_and_ended_by_a_click(
    house: House, browser: Browser
) -> None:
    await house.furnish()
    await house.burn()
    await browser.until("document.querySelector('.alarm[data-state=alarm]:not(.moving) [data-action=silence]')")
    assert not await browser.ask("evaluate", script="document.body.hasAttribute('data-silenced')")
    await browser.ask("click", selector=".alarm [data-action=silence]")
    await browser.ask("select", selector="#ask-hours", value="4")
    await browser.ask("click", selector="#ask-ok")
    assert await browser.ask("evaluate", script="document.querySelector('#ask').open"), "a reason is required"
    await browser.ask("fill", selector="#ask-note", text="the brigade is here")
    await save_screenshot(browser, "silence-ask")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#ask-ok")
    await browser.until("document.body.hasAttribute('data-silenced')")
    for name in PAGES:
        await browser.ask("evaluate", script=f"location.hash = '{name}'")
        await browser.until("document.querySelector('#silences li')?.innerText.includes('the brigade is here')")
    await browser.ask("evaluate", script="location.hash = 'now'")
    assert "4 h left" in await browser.text("#silences")
    assert (await browser.text("#verdict-word")).startswith("ALARM"), "silenced, but still an alarm"
    await save_screenshot(browser, "silenced")
    assert await browser.ask("axe") == []
    (silence,) = house.hub.silences.all()
    assert (silence.who, silence.reason, silence.zone) == ("admin", "the brigade is here", "kitchen")
    await browser.ask("click", selector="#silences button")
    await browser.until("document.querySelector('#silenced').hidden")
    assert house.hub.silences.all() == []
    await browser.until("document.querySelector('#events')?.innerText.includes('SILENCE OVER')")
    assert await browser.ask("problems") == []


async def test_a_device_is_silenced_by_keyboard_and_not_by_viewers(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices tr [aria-label=\"Silence … s-00006 in kitchen\"]')")
    await browser.ask(
        "evaluate", script="document.querySelector('[aria-label=\"Silence … s-00006 in kitchen\"]').focus()"
    )
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#ask').open && document.activeElement.id === 'ask-note'")
    await browser.ask("fill", selector="#ask-note", text="being cleaned")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#silences li')?.innerText.includes('s-00006 · kitchen')")
    await save_screenshot(browser, "devices-silenced")
    viewer = await house.hub.access.create_token(ADA, "guest", Role.VIEWER)
    await browser.sign_in(house.base, viewer)
    await browser.until("document.querySelector('#silences button')?.disabled")
    assert await browser.ask("evaluate", script="document.querySelector('.zone [data-action=silence]').disabled")


def floor(path: Path) -> Path:
    """Draw a floor with three rooms."""
    image = np.full((600, 1000, 3), 255, np.uint8)
    for start, end in (((20, 20), (480, 580)), ((480, 20), (980, 300)), ((480, 300), (980, 580))):
        cv2.rectangle(image, start, end, (60, 60, 60), 5)
    cv2.imwrite(str(path), image)
    return path


async def place(browser: Browser, device: str) -> None:
    await browser.ask("fill", selector="#plan-find", text=device)
    button = f"document.querySelector('#plan-free [aria-label^=\"Place {device} \"]')"
    await browser.until(button)
    await browser.ask("evaluate", script=f"{button}.click()")
    await browser.until(f"document.activeElement.getAttribute('aria-label')?.startsWith('{device}, ')")


async def test_a_plan_is_uploaded_and_devices_are_placed_by_keyboard_and_mouse(
    house: House, browser: Browser, tmp_path: Path
) -> None:
    await house.furnish()
    await browser.ask("evaluate", script="location.hash = 'plan'")
    await browser.until("document.querySelector('#plan-empty').innerText.includes('There is no plan yet')")
    await browser.ask("click", selector="#plan-edit")
    await browser.ask("fill", selector="#plan-name", text="Ground floor")
    (tmp_path / "floor.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    await browser.ask("upload", selector="#plan-file", path=str(tmp_path / "floor.svg"))
    await browser.ask("click", selector="#plan-form button")
    await browser.until("document.querySelector('#plan-note').innerText.includes('image/svg+xml')")
    await browser.ask("upload", selector="#plan-file", path=str(floor(tmp_path / "floor.png")))
    await browser.ask("click", selector="#plan-form button")
    await browser.until("document.querySelector('#plan-image').naturalWidth === 1000")
    assert await browser.ask("evaluate", script="location.hash") == "#plan?name=Ground+floor"

    await place(browser, "s-00000")
    for _ in range(20):
        await browser.ask("press", key="ArrowLeft")
    await browser.ask("press", key="Shift+ArrowUp")
    plan = house.hub.plans.find("Ground floor")
    await eventually(lambda: plan.devices[SENSORS, "s-00000"].x == pytest.approx(0.3))
    await browser.until("document.querySelector('#plan-note').innerText.includes('30 % from the left')")
    for device, x, y in (("s-00003", 0.1, 0.4), ("s-00001", 0.8, 0.1), ("s-00007", 0.6, 0.3), ("cam-0", 0.15, 0.1)):
        await place(browser, device)
        await browser.ask("drag", selector=f".marker[aria-label^='{device}, ']", board="#plan-board", x=x, y=y)
    await eventually(lambda: plan.devices[SENSORS, "s-00003"].y == pytest.approx(0.4, abs=0.01))
    await eventually(lambda: plan.devices[SENSORS, "s-00007"].x == pytest.approx(0.6, abs=0.01))
    await browser.ask("evaluate", script="window.scrollTo(0, 0)")
    await save_screenshot(browser, "plan-editing")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#plan-edit")

    await house.burn()
    await browser.until(
        "document.querySelector('#plan-areas g[data-state=alarm] text')?.textContent === 'kitchen · ALARM'"
    )
    await browser.until("document.querySelector('.marker[aria-label^=\"s-00000, kitchen: alarm\"]')")
    colour = "getComputedStyle(document.querySelector('#plan-areas g[data-state=alarm] path')).fill"
    assert await browser.ask("evaluate", script=colour) == "rgb(216, 31, 36)"
    await browser.until("document.querySelector('.marker[data-state=dark][aria-label^=\"s-00007, hall: dark\"]')")
    assert "KITCHEN" in (await browser.text("#plan-zones")).upper()
    await browser.ask("click", selector=".marker[aria-label^='cam-0, ']")
    await browser.until("document.querySelector('#plan-picture').naturalWidth === 320")
    await save_screenshot(browser, "plan")
    assert await browser.ask("axe") == []

    await browser.ask("click", selector="#plan-edit")
    await browser.ask("evaluate", script="document.querySelector('.marker[aria-label^=\"cam-0, \"]').focus()")
    await browser.ask("press", key="Delete")
    await eventually(lambda: (CAMERAS, "cam-0") not in plan.devices)
    problems = await browser.ask("problems")
    assert [text for text in problems if "415" not in text] == []


async def test_devices_are_offered_although_the_first_request_has_placed_ones_only(
    house: House, browser: Browser, tmp_path: Path
) -> None:
    await house.furnish(sensors=520, cameras=0)
    plan = await house.hub.plans.store(ADA, "Hall", await make_plan_image(floor(tmp_path / "floor.png").read_bytes()))
    on_it = [(SENSORS, f"s-{number:05}") for number in range(515)]
    await asyncio.gather(*(house.hub.plans.place(ADA, "Hall", key, Place(0.5, 0.5)) for key in on_it))
    await browser.ask("evaluate", script="location.hash = 'plan'")
    await browser.until("document.querySelectorAll('.marker').length === 515")
    await browser.ask("click", selector="#plan-edit")
    await browser.until("document.querySelector('#plan-free').children.length === 5")
    await place(browser, "s-00519")
    assert (SENSORS, "s-00519") in plan.devices


async def test_newly_declared_devices_are_offered_while_a_plan_is_edited(
    house: House, browser: Browser, tmp_path: Path
) -> None:
    await house.hub.plans.store(ADA, "Hall", await make_plan_image(floor(tmp_path / "floor.png").read_bytes()))
    await browser.ask("evaluate", script="location.hash = 'plan'")
    await browser.until("document.querySelector('#plan-image').naturalWidth")
    await browser.ask("click", selector="#plan-edit")
    await browser.until("document.querySelector('#plan-found').innerText.includes('No matching device')")
    await house.furnish()
    await browser.until("document.querySelectorAll('#plan-free button').length === 11")


async def test_a_double_click_places_a_device_once(house: House, browser: Browser, tmp_path: Path) -> None:
    await house.furnish()
    await house.hub.plans.store(ADA, "Hall", await make_plan_image(floor(tmp_path / "floor.png").read_bytes()))
    await browser.ask("evaluate", script="location.hash = 'plan'")
    await browser.until("document.querySelector('#plan-image').naturalWidth")
    await browser.ask("click", selector="#plan-edit")
    button = "document.querySelector('#plan-free button')"
    await browser.until(button)
    await browser.ask("evaluate", script=f"{{ const button = {button}; button.click(); button.click(); }}")
    await browser.until("document.querySelector('#plan-note').innerText.includes('was placed')")
    await browser.ask("evaluate", script="performance.clearResourceTimings()")
    await browser.until(
        "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/Hall')).length > 1"
    )
    assert await browser.ask("evaluate", script="document.querySelectorAll('.marker').length") == 1


async def test_everybody_sees_plans_in_the_light_theme_and_on_a_phone(
    house: House, browser: Browser, tmp_path: Path
) -> None:
    await house.furnish()
    image = await make_plan_image(floor(tmp_path / "floor.png").read_bytes())
    for name in ("Ground floor", "Attic"):
        await house.hub.plans.store(ADA, name, image)
    for device, x, y in (("s-00000", 0.2, 0.2), ("s-00003", 0.4, 0.8), ("s-00001", 0.7, 0.3), ("s-00009", 0.8, 0.7)):
        await house.hub.plans.place(ADA, "Attic", (SENSORS, device), Place(x, y))
    viewer = await house.hub.access.create_token(ADA, "guest", Role.VIEWER)
    await browser.sign_in(house.base, viewer, scheme="light", width=390, height=844)
    await browser.ask("evaluate", script="location.hash = 'plan?name=Attic'")
    await browser.until("document.querySelectorAll('.marker').length === 4")
    assert await browser.ask("evaluate", script="document.querySelector('#plan-edit').hidden")
    assert "no longer declared" in await browser.ask(
        "evaluate", script="document.querySelector('.marker[aria-label^=s-00009]').title"
    )
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await browser.ask("evaluate", script=wider) <= 0
    await save_screenshot(browser, "plan-phone")
    assert await browser.ask("axe") == []
    await browser.ask("evaluate", script="document.querySelector('#plan-tabs button').click()")
    await browser.until("location.hash === '#plan?name=Ground+floor'")
    await browser.until("document.querySelectorAll('.marker').length === 0")


async def test_events_are_filtered_and_paged_and_a_link_shows_the_same(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn()
    for number in range(60):
        await house.hub.actions.perform(Action.TEST, ADA, "default", "hall", note=f"number {number}")
    await house.hub.silences.begin(ADA, "default", "stairs", reason="painting", minutes=5)
    await browser.ask("evaluate", script="location.hash = 'history'")
    await browser.ask("click", selector="#show-events")
    rows = "document.querySelectorAll('#events-found tr').length"
    await browser.until(f"{rows} === 50 && document.querySelector('#events-note').innerText.includes('older')")
    assert "painting" in await browser.text("#events-found tr:first-child")
    await save_screenshot(browser, "events")
    assert await browser.ask("axe") == []

    await browser.ask("fill", selector="#events-zone", text="hall")
    await browser.ask("select", selector="#events-type", value="test")
    await browser.until(f"{rows} === 50 && !document.querySelector('#events-found').innerText.includes('painting')")
    await browser.ask("click", selector="#events-older")
    await browser.until(f"{rows} === 10")
    assert "number 0" in await browser.text("#events-found tr:last-child")
    link = await browser.ask("evaluate", script="location.href")
    assert "show=events&zone=hall&type=test&before=" in link

    await browser.ask("goto", url="about:blank")
    await browser.ask("goto", url=link)
    await browser.until(f"{rows} === 10")
    assert await browser.ask("evaluate", script="document.querySelector('#events-type').value") == "test"
    await browser.ask("click", selector="#events-newest")
    await browser.until(f"{rows} === 50")
    await browser.ask("evaluate", script="history.back()")
    await browser.until(f"{rows} === 10")

    await browser.ask("goto", url=f"{house.base}/#history?show=events&level=alarm&kind=heat&device=s-00000&type=state")
    await browser.until(f"{rows} === 1")
    await browser.ask("click", selector="#events-found button")
    await browser.until("document.querySelector('#alarm').open")
    await browser.ask("goto", url=f"{house.base}/#history?of=open&zone=kitchen")
    await browser.until("document.querySelectorAll('#past-alarms tr').length === 1")
    assert await browser.ask("evaluate", script="document.querySelector('#past-of').value") == "open"
    await browser.ask("goto", url=f"{house.base}/#history?show=events&until=2020-01-01T00:00:00.000Z")
    await browser.until("document.querySelector('#events-note').innerText === 'No event matches.'")
    assert await browser.ask("problems") == []


async def test_each_fleet_has_its_load_its_scaling_and_the_reason(house: House, browser: Browser) -> None:
    await house.furnish()
    load = Load(arrival_rate=1234, cost_seconds=0.001, utilization=0.62, queue_depth=87, oldest_age_ns=SECOND // 4)
    house.hub.coverage.scaling.update(
        FleetScaling(
            fleet=SENSORS, mode="embedded", min_shards=1, max_shards=8, shards=2, ready_shards=1, known=True,
            required_shards=2, reason="1.77 to keep up", load=load,
            last=ScaleChange(time="2026-11-22T10:00:00Z", before=1, after=2, reason="1.77 to keep up"),
            members=[ShardLoad(shard="hall-0", load=load), ShardLoad(shard="hall-1", why_not_ready="being created")],
        )
    )  # fmt: skip
    await browser.ask("evaluate", script="location.hash = 'fleets'")
    await browser.until("document.querySelectorAll('.fleet').length === 2")
    cameras, sensors = [await browser.text(f".fleet:nth-child({number})") for number in (1, 2)]
    assert "No operator reports on this fleet" in cameras
    for words in ("1 of 2 ready, from 1 to 8", "62 % of a core each", "1,234 /s", "87, oldest 0.3 s",
                  "Last change: from 1 to 2 shards", "1.77 to keep up", "being created", "6 of 8"):  # fmt: skip
        assert words in sensors
    await save_screenshot(browser, "fleets")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_figures_list_what_only_a_candidate_found_with_its_clips(house: House, browser: Browser) -> None:
    await house.furnish()
    assert house.candidates
    now_ns = time.time_ns()
    row = DifferenceRow(
        id="d-1", device="cam-0", zone="kitchen", kind="flame", level="alarm", which="candidate", atNs=now_ns,
        terms=[("flame.score", 0.55, 0.5, "1")], episode="e-1",
    )  # fmt: skip
    report = CandidateReport(CAMERAS, "yard-9", "lower-flame", "id-1", now_ns, now_ns, 1234, 5, 0.5, [row])
    await house.candidates.record(report)
    await browser.ask("evaluate", script="location.hash = 'figures'")
    await browser.until("document.querySelector('#differences li')")
    difference = await browser.text("#differences li")
    assert "cam-0 (kitchen): alarm by flame, only by the candidate lower-flame" in difference
    compared = await browser.text("#candidates-compared")
    assert "lower-flame is compared since" in compared
    assert "1,234 readings or frames, 5 left out" in compared
    await save_screenshot(browser, "candidates")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_figures_give_the_rate_of_false_alarms_with_its_limit(house: House, browser: Browser) -> None:
    await house.furnish()
    since_ns = house.hub.timeline.now_ns() - 30 * DAY
    ledger = Ledger(offered=10, analysed=10, since_ns=since_ns)
    status = DeviceStatus(id="cam-0", zone="kitchen", covered=True, ledger=ledger)
    report = Coverage(fleet=CAMERAS, shard="yard-9", time_ns=house.hub.timeline.now_ns(), devices=[status])
    house.hub.coverage.report(report)
    await browser.ask("evaluate", script="location.hash = 'figures'")
    await browser.until("document.querySelector('#figures-site tbody')?.innerText.includes('at most 0.1 a day')")
    site, cameras = [await browser.text(f"#figures-site tbody tr:nth-child({number})") for number in (1, 2)]
    assert site.startswith("All devices")
    assert cameras.startswith("Cameras")
    assert "0 false of 0 alarms in 30 device-days" in f"{site} {cameras}"
    assert "Version " in await browser.text("#figures-site thead")
    await browser.ask("fill", selector="#figures-filter", text="nowhere")
    await browser.until("!document.querySelector('#figures-devices tbody tr')")
    await save_screenshot(browser, "figures")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_of_many_fleets_the_troubled_ones_are_shown_and_the_others_are_found(
    house: House, browser: Browser
) -> None:
    for number in range(300):
        devices = [Device(id="s-1", zone="hall")] if number == 277 else []
        roster = FleetRoster(fleet=f"site/sensors/f-{number:03}", epoch=1, deadline_ns=5 * SECOND, devices=devices)
        await house.hub.coverage.set_roster(roster)
    shown = "[...document.querySelectorAll('.fleet .name')].map((name) => name.firstChild.textContent.trim())"
    await browser.ask("evaluate", script="location.hash = 'fleets'")
    await browser.until("document.querySelectorAll('.fleet').length === 40")
    names = await browser.ask("evaluate", script=shown)
    assert names == sorted(names)
    assert "f-277" in names
    assert "40 of 300" in await browser.text("#fleets-note")
    await browser.ask("fill", selector="#fleets-filter", text="f-123")
    await browser.until(f"{shown}.join() === 'f-123'")
    await browser.ask("fill", selector="#fleets-filter", text="f-nowhere")
    await browser.until("document.querySelector('#fleets-empty').innerText === 'No fleet matches.'")
    assert await browser.ask("axe") == []
    assert await browser.ask("problems") == []


async def test_a_thermal_picture_is_laid_over_a_cameras_adjusted_and_stored(house: House, browser: Browser) -> None:
    await house.furnish()
    button = "document.querySelector('[aria-label=\"Thermal … picture over cam-0\"]')"
    await browser.until(button)
    await browser.ask("evaluate", script=f"{button}.click()")
    await browser.until("document.querySelector('#overlay').open")
    await browser.until("document.querySelector('#overlay-picture').naturalWidth === 320")
    await browser.until(
        "document.querySelector('#overlay-sensor').selectedOptions[0].innerText === 's-00000 · kitchen'"
    )
    for _ in range(4):
        await browser.ask("evaluate", script="document.querySelector('#overlay-opacity').focus()")
        await browser.ask("press", key="ArrowLeft")
    await browser.ask("evaluate", script="document.querySelector('#overlay-x').focus()")
    await browser.ask("press", key="Home")
    await asyncio.sleep(1)
    await save_screenshot(browser, "overlay-adjust")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#overlay-save")
    await browser.until("!document.querySelector('#overlay').open && document.querySelector('.view .thermal')")
    ((camera, overlay),) = house.hub.overlays.all()
    assert (camera, overlay.sensor, overlay.x) == ((CAMERAS, "cam-0"), "s-00000", 0)
    assert overlay.opacity == pytest.approx(0.4)
    await browser.until("document.querySelector('.view img[alt*=\"under the thermal picture of s-00000\"]')")
    await browser.until("document.querySelector('.view .thermal').style.opacity === '0.4'")
    await asyncio.sleep(1)
    await save_screenshot(browser, "overlay")
    assert await browser.ask("axe") == []
    await browser.ask("evaluate", script=f"{button}.click()")
    await browser.until("document.querySelector('#overlay').open")
    await browser.ask("click", selector="#overlay-remove")
    await browser.until("!document.querySelector('.view .thermal')")
    assert house.hub.overlays.all() == []
    assert await browser.ask("problems") == []


async def test_a_sensor_for_an_overlay_is_found_after_many_cameras(house: House, browser: Browser) -> None:
    cameras = [Device(id=f"cam-{number:03}", zone="far") for number in range(510)]
    await house.hub.coverage.set_roster(FleetRoster(fleet="default/cameras/far", epoch=1, devices=cameras))
    await house.furnish()
    await browser.until("document.querySelector('.view .over')")
    await browser.ask("evaluate", script="document.querySelector('.view .over').click()")
    await browser.until("document.querySelector('#overlay').open")
    options = "[...document.querySelector('#overlay-sensor').options].map((option) => option.innerText).join()"
    assert await browser.ask("evaluate", script=options) == "s-00000 · kitchen,s-00001 · hall"
