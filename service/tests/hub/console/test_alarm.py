"""An open alarm in a real Chromium: it comes first, keeps up, and its buttons never move."""

import asyncio

import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER

from embereye.levels import ZoneState

from .house import TOKEN, House
from .link import linked

pytestmark = pytest.mark.needs(BROWSER)
STEADY = "document.querySelector('#focus:not([hidden], .moving)')"
SENTENCE = "document.querySelector('#focus-sentence').textContent"
BOXES = "[...document.querySelectorAll('%s')].map((element) => element.getBoundingClientRect().toJSON())"
BUTTONS = BOXES % "#focus-actions button"
NAMES = "[...document.querySelectorAll('#alarm-list h3')].map((name) => name.innerText).join()"
NAME = "document.querySelector('#focus-name').textContent"


@pytest.mark.parametrize(("width", "height", "lowest"), [(390, 844, 700), (768, 1024, 700), (1440, 900, 600)])
async def test_an_alarm_its_picture_and_its_buttons_are_in_sight(
    house: House, browser: Browser, width: int, height: int, lowest: int
) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await house.burn("kitchen", device="s-00000")
    await browser.sign_in(house.base, TOKEN, width=width, height=height)
    await browser.until(f"{STEADY} && document.querySelector('#focus-screen').naturalWidth === 320")
    buttons = await browser.ask("evaluate", script=BUTTONS)
    assert len(buttons) == 4
    assert max(button["bottom"] for button in buttons) < lowest
    assert min(button["height"] for button in buttons) >= 44, "for a thumb"
    (picture,) = await browser.ask("evaluate", script=BOXES % "#focus-stage")
    assert 0 < picture["top"] < picture["bottom"] <= height
    assert await browser.ask("evaluate", script="scrollY") == 0
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await browser.ask("evaluate", script=wider) <= 0


@pytest.mark.parametrize("width", [390, 1440])
async def test_nothing_moves_when_pictures_arrive_late(house: House, width: int) -> None:
    await house.furnish()
    async with linked(house.base) as link, run_browser() as browser:
        await browser.sign_in(link.base, TOKEN, width=width, height=844 if width < 700 else 900)
        link.delay(b"/snapshot.jpg", 2)
        link.delay(b"/4.jpg", 2)
        await house.burn_before("cam-0", "kitchen")
        await house.burn("kitchen", device="s-00000")
        await browser.until(STEADY)
        watch = """{
          window.shifted = [];
          const boxes = 'header, .verdict, #alarms, #alarm-list, #focus, #focus > *, #focus-actions *, .stage .screen';
          new PerformanceObserver((list) => {
            const nodes = list.getEntries().flatMap(({ sources }) => sources.map(({ node }) => node));
            window.shifted.push(...nodes.filter((node) => node?.matches?.(boxes)).map(({ id }) => id));
          }).observe({ type: 'layout-shift' });
        }"""
        await browser.ask("evaluate", script=watch)
        before = await browser.ask("evaluate", script=BUTTONS)
        await browser.until("document.querySelector('#focus-screen').naturalWidth === 320")
        await browser.until("!document.querySelector('#focus-thermal').hidden")
        await browser.until("document.querySelector('#focus .clips li')")
        await asyncio.sleep(1)
        assert await browser.ask("evaluate", script=BUTTONS) == before
        assert await browser.ask("evaluate", script="window.shifted") == []


async def test_the_burning_place_has_a_box_on_the_still_too(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await browser.until("document.querySelector('#focus-screen').naturalWidth === 320")
    await browser.until("document.querySelector('#focus-boxes rect')")
    assert await browser.ask("evaluate", script="document.querySelector('#focus-live').matches('.blank')")
    (box,) = await browser.ask("evaluate", script=BOXES % "#focus-boxes rect")
    (screen,) = await browser.ask("evaluate", script=BOXES % "#focus-screen")
    scale = min(screen["width"] / 320, screen["height"] / 240)  # the whole picture is shown, in the middle
    left = screen["left"] + (screen["width"] - 320 * scale) / 2
    top = screen["top"] + (screen["height"] - 240 * scale) / 2
    expected = (left + 0.04 * 320 * scale, top + 0.51 * 240 * scale, 0.18 * 320 * scale, 0.23 * 240 * scale)
    assert [box[name] for name in ("left", "top", "width", "height")] == pytest.approx(expected, abs=4)  # its line


async def test_the_sentence_keeps_up_with_the_fire(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{SENTENCE}.startsWith('Flame and ')")
    await asyncio.sleep(3)
    house.celsius["s-00000"] = 241
    await browser.until(f"{SENTENCE}.startsWith('Flame and 241 °C in kitchen, growing, since ')")
    assert await browser.ask("evaluate", script=f"/\\(\\d.* s\\)$/.test({SENTENCE})")


async def test_the_sentence_has_the_temperature_of_the_sign_until_a_newer_one_is_known(
    house: House, browser: Browser
) -> None:
    await house.furnish()
    await browser.until("document.querySelectorAll('.zone').length")
    house.pause()
    await house.burn("kitchen", device="s-00000")
    await browser.until("document.querySelector('#focus-thermal, #focus-heat')?.getAttribute('aria-label')")
    await browser.until(f"{SENTENCE}.startsWith('61.3 °C in kitchen, ')")
    await asyncio.sleep(2)
    assert (await browser.text("#focus-sentence")).startswith("61.3 °C in kitchen, ")


async def test_other_pages_say_what_burns_now_and_read_the_cause_out_once(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("kitchen", value=61.3)
    await browser.ask("evaluate", script="location.hash = 'devices'")
    present = "document.querySelector('#verdict-present')"
    await browser.until(f"{present}.checkVisibility() && {present}.innerText.startsWith('61.3 °C in kitchen, since ')")
    await house.heat_up("s-00000", "kitchen", 450)
    await browser.until(f"{present}.innerText.startsWith('450 °C in kitchen, since ')")
    cause = "document.querySelector('#verdict-detail')"
    assert "61.3 °C" in await browser.ask("evaluate", script=f"{cause}.textContent")
    assert await browser.ask("evaluate", script=f"{cause}.clientHeight") == 1, "it is there for screen readers"
    await browser.ask("evaluate", script="location.hash = 'now'")
    await browser.until(f"{present}.hidden")


async def test_signs_are_three_lines_until_all_are_wanted(house: House, browser: Browser) -> None:
    await house.furnish(sensors=14)
    for device in ("s-00000", "s-00003", "s-00006", "s-00009"):
        await house.burn("kitchen", device=device)
    lines = "document.querySelectorAll('#focus .signs li').length"
    await browser.until(f"{STEADY} && {lines} === 3 && document.querySelector('#focus-more').innerText === '1 more'")
    before = await browser.ask("evaluate", script=BUTTONS)
    await browser.ask("click", selector="#focus-more")
    await browser.until(f"{lines} === 4")
    assert await browser.ask("evaluate", script=BUTTONS) == before
    await browser.ask("click", selector="#focus-more")
    await browser.until(f"{lines} === 3")


async def test_other_zones_are_a_strip_while_one_burns(house: House, browser: Browser) -> None:
    await house.furnish_zones(30)
    rows = "new Set([...document.querySelectorAll('.zone')].map((zone) => zone.getBoundingClientRect().top)).size"
    await browser.until(f"document.querySelectorAll('.zone').length === 30 && {rows} > 3")
    await house.burn("room-007", device="s-00007")
    await browser.until(f"{STEADY} && {rows} === 1")
    assert not await browser.ask("evaluate", script="document.querySelector('.zone .actions').checkVisibility()")
    await browser.ask("click", selector="#zones-more")
    await browser.until(f"{rows} > 3 && document.querySelector('.zone .actions').checkVisibility()")


async def test_the_focus_stays_until_its_alarm_is_acknowledged(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("hall", device="s-00001")
    await browser.until(f"{NAME} === 'hall'")
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{NAMES} === 'kitchen,hall'")
    assert await browser.ask("evaluate", script=NAME) == "hall"
    await browser.until(STEADY)
    await browser.ask("click", selector="#focus [data-action=acknowledge]")
    await browser.until(f"{NAME} === 'kitchen' && {NAMES} === 'kitchen,hall'")
    states = {zone.name: zone.state for zone in house.hub.zones.messages() if zone.alarm}
    assert states == {"hall": ZoneState.ACKNOWLEDGED, "kitchen": ZoneState.ALARM}
    await browser.ask("click", selector="#alarm-list li:nth-child(2) button")
    await browser.until(f"{NAME} === 'hall'")


async def test_a_press_just_after_the_focus_moved_is_not_taken(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("hall", device="s-00001")
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{STEADY} && {NAMES} === 'kitchen,hall'")
    press = """{
      const card = document.querySelector('#focus');
      new MutationObserver((_, watch) => {
        if (!card.classList.contains('moving')) return;
        watch.disconnect();
        document.querySelector('#focus [data-action=acknowledge]').click();
      }).observe(card, { attributes: true });
      document.querySelector('#alarm-list li:not(.current) button').click();
    }"""
    await browser.ask("evaluate", script=press)
    await browser.until("document.querySelector('#toast').textContent.includes('press again')")
    assert {zone.state for zone in house.hub.zones.messages() if zone.alarm} == {ZoneState.ALARM}
    await browser.until(STEADY)
    await browser.ask("click", selector="#focus [data-action=acknowledge]")
    await browser.until("document.querySelector('.queued[data-state=acknowledged]')")


async def test_escalating_notifies_again_with_a_note(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await browser.until(STEADY)
    await browser.ask("click", selector="#focus [data-action=escalate]")
    await browser.ask("fill", selector="#ask-note", text="nobody is at the gate")
    await browser.ask("click", selector="#ask-ok")
    await browser.until("document.querySelector('#events').innerText.includes('nobody is at the gate')")
    assert await browser.text("#events li:first-child .head span") == "ESCALATED"


async def test_a_dark_camera_elsewhere_comes_after_the_burning_one(house: House, browser: Browser) -> None:
    await house.furnish(cameras=20)
    house.dark_cameras.add("cam-0")
    first = "document.querySelector('.view .caption').innerText"
    await browser.until(f"{first}.includes('cam-0')")
    await house.burn_before("cam-1", "hall")
    await browser.until(f"{first}.includes('hall')")
