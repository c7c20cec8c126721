"""The console in a real Chromium while its hub is killed, frozen or cut off, and once it is back."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER

from embereye.hub.roles import Role

from .house import ADA, CAMERAS, SENSORS, TOKEN, ZONES, House
from .link import Link, linked

pytestmark = pytest.mark.needs(BROWSER)
VERDICT = "document.querySelector('#verdict-word').textContent"
ALARMS = "document.querySelectorAll('#alarm-list > li').length"
PICTURES = "[...document.querySelectorAll('.alarm .pictures img')]"
SILENCE = ".zone [data-action=silence]"


@pytest.fixture
async def link(house: House) -> AsyncIterator[Link]:
    """The network between the window and the hub."""
    async with linked(house.base) as link:
        yield link


@pytest.fixture
async def browser(link: Link) -> AsyncIterator[Browser]:
    """A window behind the link, in which an admin has signed in."""
    async with run_browser() as window:
        await window.sign_in(link.base, TOKEN)
        yield window


async def test_an_alarm_during_a_network_outage_is_shown_once_and_in_the_events(
    house: House, browser: Browser, link: Link
) -> None:
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{VERDICT}.startsWith('ALARM · kitchen')")
    link.cut()
    await house.burn("hall", device="s-00001")
    await browser.until(f"{VERDICT} === 'UNKNOWN'")
    link.mend()
    await browser.until(f"{VERDICT} === 'ALARM · hall, kitchen'")
    assert await browser.ask("evaluate", script=ALARMS) == 2
    heads = "[...document.querySelectorAll('#events .head')].filter((head) => head.innerText === 'hallALARM').length"
    await browser.until(heads)
    assert await browser.ask("evaluate", script=heads) == 1


async def test_a_view_shows_the_age_of_its_picture(house: House, browser: Browser, link: Link) -> None:
    await house.furnish(cameras=1)
    view = "document.querySelector('.view:has(img)')"
    await browser.until(f"{view}?.querySelector('img').naturalWidth === 320")
    link.swallow(b"/snapshot.jpg")
    await browser.until(f"parseFloat({view}.querySelector('.age').innerText) > 5")
    assert await browser.ask("evaluate", script=f"{view}.querySelector('img').naturalWidth") == 320
    link.swallow(b"")
    await browser.until(f"parseFloat({view}.querySelector('.age').innerText) < 5")


@pytest.mark.slow
async def test_pictures_that_never_arrive_do_not_block_requests_to_the_hub(
    house: House, browser: Browser, link: Link
) -> None:
    await house.furnish(cameras=8)
    await browser.until("[...document.querySelectorAll('.view img')].filter((image) => image.naturalWidth).length > 6")
    link.swallow(b"/snapshot.jpg")
    await browser.until(f"{VERDICT} === 'UNKNOWN'")
    link.swallow(b"")
    await browser.until(f"{VERDICT} !== 'UNKNOWN'")


async def test_cameras_are_visible_over_a_slow_line(house: House, browser: Browser, link: Link) -> None:
    link.delay(b"/snapshot.jpg", 3)
    await house.furnish(cameras=2)
    await browser.until("document.querySelector('.view img')?.naturalWidth === 320")


async def test_pictures_of_alarms_that_never_arrive_do_not_block_and_are_retried(
    house: House, browser: Browser, link: Link
) -> None:
    await house.furnish(cameras=8)
    await browser.until(f"{VERDICT} === 'FAULT'")
    link.swallow(b"/4.jpg")
    for number in range(8):
        await house.burn_before(f"cam-{number}", ZONES[number % 4])
    await browser.until(f"{VERDICT}.startsWith('ALARM')")
    await browser.until(f"{PICTURES}.length === 2 && {PICTURES}.every((image) => !image.naturalWidth)")
    link.swallow(b"")
    await browser.until(f"{PICTURES}.length === 2 && {PICTURES}.every((image) => image.naturalWidth === 320)")


async def test_pictures_of_an_alarm_are_shown_once_the_hub_is_back(house: House, browser: Browser, link: Link) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    link.swallow(b"/4.jpg")
    await house.burn_before("cam-0", "kitchen")
    await browser.until(f"{PICTURES}.length === 1")
    link.swallow(b"")
    link.refuse()
    await browser.until(f"{VERDICT} === 'UNKNOWN'")
    link.mend()
    await browser.until(f"{PICTURES}.every((image) => image.naturalWidth === 320 && !image.hidden)")


async def test_a_day_that_could_not_be_loaded_is_not_called_quiet(house: House, browser: Browser, link: Link) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    link.refuse()
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelector('#day-note').innerText.includes('cannot be shown')")
    assert await browser.text("#day-quiet") == "Nothing is known about this time."
    link.mend()
    await browser.until("document.querySelector('#day-quiet').hidden && document.querySelector('#day-states li')")


async def test_typed_text_remains_until_the_hub_has_accepted_it(house: House, browser: Browser, link: Link) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    await browser.ask("click", selector=SILENCE)
    await browser.ask("fill", selector="#ask-note", text="the brigade is here")
    link.refuse()
    await browser.until(f"{VERDICT} === 'UNKNOWN'")
    assert "UNKNOWN" in await browser.text("#ask .urgent"), "shown in the dialog: the page behind it is not read out"
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#ask-problem').textContent === 'The hub cannot be reached.'")
    assert await browser.ask("evaluate", script="document.querySelector('#ask-note').value") == "the brigade is here"
    link.mend()
    await browser.until("document.querySelector('#ask .urgent').textContent === ''")
    await browser.ask("press", key="Enter")
    await browser.until("!document.querySelector('#ask').open")
    (silence,) = house.hub.silences.all()
    assert silence.reason == "the brigade is here"


async def test_an_alarm_that_starts_behind_a_dialog_is_shown_in_it(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("click", selector=SILENCE)
    await house.burn("hall", device="s-00001")
    await browser.until("document.querySelector('#ask .urgent').textContent.startsWith('ALARM · hall: heat 61.3 °C')")
    assert await browser.ask("evaluate", script="document.querySelector('#ask .urgent').role") == "alert"
    assert await browser.ask("axe") == []


async def test_an_outage_is_read_out_once_and_not_every_second(house: House, browser: Browser, link: Link) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    link.refuse()
    await browser.until("!document.querySelector('#banner').hidden")
    watch = """{
      window.spoken = 0;
      const read = (node) => !(node.nodeType === 1 ? node : node.parentElement).closest('[aria-hidden=true]');
      new MutationObserver((changes) => { window.spoken += changes.filter(({ target }) => read(target)).length; })
        .observe(document.querySelector('#banner'), { childList: true, characterData: true, subtree: true });
    }"""
    await browser.ask("evaluate", script=watch)
    age = await browser.text("#banner-age")
    await browser.until(f"document.querySelector('#banner-age').innerText !== '{age}'")
    assert await browser.ask("evaluate", script="window.spoken") == 0


async def test_a_page_requested_during_an_outage_is_shown_once_the_hub_is_back(
    house: House, browser: Browser, link: Link
) -> None:
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{VERDICT}.startsWith('ALARM')")
    for address, note, rows in (
        ("history", "#past-note", "#past-alarms tr"),
        ("history?show=events", "#events-note", "#events-found tr"),
        ("day", "#day-note", ".lane"),
    ):
        link.refuse()
        await browser.ask("evaluate", script=f"location.hash = '{address}'")
        await browser.until(f"document.querySelector('{note}').innerText.includes('The hub cannot be reached.')")
        link.mend()
        await browser.until(f"document.querySelectorAll('{rows}').length")
        assert "reached" not in await browser.text(note)


async def test_a_window_that_slept_shows_the_present_state_when_it_wakes(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    await browser.ask("lifecycle", state="frozen")
    await house.burn("hall", device="s-00001")
    await asyncio.sleep(6)
    await browser.ask("lifecycle", state="active")
    await browser.until(f"{VERDICT} === 'ALARM · hall' && document.querySelector('#banner').hidden && {ALARMS} === 1")


async def test_signing_in_again_returns_to_the_shown_page(house: House, browser: Browser) -> None:
    await house.furnish()
    token = await house.hub.access.create_token(ADA, "guest", Role.VIEWER)
    await browser.sign_in(house.base, token)
    await browser.ask("evaluate", script="location.hash = 'history?zone=kitchen'")
    await browser.until("!document.querySelector('#page-history').hidden")
    await house.hub.access.revoke(ADA, "guest")
    await browser.until("document.querySelector('#token')")
    await browser.ask("fill", selector="#token", text=TOKEN)
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#past-zone')?.value === 'kitchen'")


async def test_a_link_to_a_page_leads_to_it_after_signing_in(house: House, browser: Browser) -> None:
    await browser.ask("open", url=f"{house.base}/#history?zone=kitchen")
    await browser.until("document.querySelector('#token')")
    await browser.ask("fill", selector="#token", text=TOKEN)
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#past-zone')?.value === 'kitchen'")
    assert await browser.ask("problems") == []


async def test_a_link_on_another_site_leads_signed_in_people_to_its_page(house: House, browser: Browser) -> None:
    await browser.sign_in(house.base, TOKEN)
    await browser.ask("goto", url=f"{house.base.replace('127.0.0.1', 'localhost')}/runbooks")
    await browser.ask("evaluate", script=f"location.href = '{house.base}/#history?zone=kitchen'")
    await browser.until("document.querySelector('#past-zone')?.value === 'kitchen'")


async def test_an_answer_from_a_proxy_is_shown_by_its_status(house: House, browser: Browser) -> None:
    await browser.ask("open", url=f"{house.base}/login")
    gone = "window.fetch = async () => new Response('<html>Bad Gateway</html>', { status: 502 }); 0"
    await browser.ask("evaluate", script=gone)
    await browser.ask("fill", selector="#token", text=TOKEN)
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#problem').textContent")
    assert await browser.text("#problem") == "The hub answered 502."


async def test_signing_in_never_leads_to_another_site(house: House, browser: Browser) -> None:
    for hidden in ("/", "\t/", "\n\\", "."):
        elsewhere = f"/{hidden}/{house.base.removeprefix('http://').replace('127.0.0.1', 'localhost')}"
        await browser.ask("open", url=f"{house.base}/login?{urlencode({'next': elsewhere})}")
        await browser.ask("fill", selector="#token", text=TOKEN)
        await browser.ask("press", key="Enter")
        await browser.until("location.pathname !== '/login' || location.hostname === 'localhost'")
        assert await browser.ask("evaluate", script="location.origin") == house.base, repr(hidden)


async def test_text_typed_before_the_session_ended_is_restored(house: House, browser: Browser) -> None:
    await house.furnish()
    token = await house.hub.access.create_token(ADA, "guard", Role.OPERATOR)
    await browser.sign_in(house.base, token)
    note = "document.querySelector('#ask-note').value"
    await browser.until(f"document.querySelector('{SILENCE}')")
    await browser.ask("click", selector=SILENCE)
    await browser.until("document.querySelector('#ask').open")
    await browser.ask("fill", selector="#ask-note", text="welding till noon")
    await house.hub.access.revoke(ADA, "guard")
    await browser.until("document.querySelector('#token')")
    assert "session has ended" in await browser.text("#problem")
    await browser.ask("fill", selector="#token", text=TOKEN)
    await browser.ask("press", key="Enter")
    await browser.until(f"document.querySelector('{SILENCE}')")
    await browser.ask("click", selector=SILENCE)
    await browser.until("document.querySelector('#ask').open")
    assert await browser.ask("evaluate", script=note) == "welding till noon"
    await browser.ask("click", selector="#ask-cancel")
    await browser.ask("click", selector=SILENCE)
    assert await browser.ask("evaluate", script=note) == ""


@pytest.mark.slow
async def test_a_wall_shows_pictures_again_each_time_the_hub_was_killed(
    house: House, browser: Browser, link: Link
) -> None:
    await house.furnish(cameras=3)
    await browser.ask("evaluate", script="location.hash = 'wall'")
    current = (
        "(document.querySelectorAll('#wall .cell img').length === 3 && [...document.querySelectorAll('#wall .cell')]"
        ".every((cell) => cell.dataset.shown && parseFloat(cell.querySelector('.age').textContent) < 5))"
    )
    elements = "document.querySelectorAll('*').length"
    await browser.until(current)
    before = await browser.ask("evaluate", script=elements)
    for _ in range(2):
        link.refuse()
        await browser.until(f"{VERDICT} === 'UNKNOWN'")
        link.mend()
        await browser.until(f"{VERDICT} !== 'UNKNOWN' && {current}")
    assert await browser.ask("evaluate", script=elements) <= before + 20  # nothing is left of each outage


@pytest.mark.parametrize("page", ["fleets", "figures"])
async def test_a_list_that_could_not_be_loaded_is_not_called_empty_and_comes_with_the_hub(
    house: House, browser: Browser, link: Link, page: str
) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    link.refuse()
    await browser.ask("evaluate", script=f"location.hash = '{page}'")
    await browser.until(f"document.querySelector('#{page}-note').textContent === 'The hub cannot be reached.'")
    assert await browser.ask("evaluate", script=f"document.querySelector('#{page}-empty').hidden")
    link.mend()
    await browser.until(f"document.querySelector('#{page}-note').textContent !== 'The hub cannot be reached.'")


@pytest.mark.parametrize(
    ("page", "address", "place"), [("wall", b"limit=200&text", "#wall-note"), ("plan", b"/v1/plans", "#plan-empty")]
)
async def test_a_list_that_has_not_come_yet_is_not_called_empty(
    house: House, browser: Browser, link: Link, page: str, address: bytes, place: str
) -> None:
    await house.furnish()
    await browser.until(f"{VERDICT} === 'FAULT'")
    link.swallow(address)
    await browser.ask("evaluate", script=f"location.hash = '{page}'")
    await browser.until(f"document.querySelector('{place}').textContent")
    assert await browser.text(place) in {"Loading …", "The hub does not answer."}
    await browser.until(f"document.querySelector('{place}').textContent === 'The hub does not answer.'")


async def test_figures_that_take_seconds_to_compute_are_shown(house: House, browser: Browser, link: Link) -> None:
    link.delay(b"/v1/quality", 3)
    await browser.ask("evaluate", script="location.hash = 'figures'")
    shown = "(!document.querySelector('#figures-empty').hidden || document.querySelector('#figures-site tbody tr'))"
    await browser.until(f"{shown} || document.querySelector('#figures-note').textContent")
    assert await browser.text("#figures-note") == ""


async def test_the_page_of_a_sensor_does_not_show_the_thermal_picture_of_another(
    house: House, browser: Browser, link: Link
) -> None:
    await house.furnish()
    canvas = "document.querySelector('#device-thermal')"
    pixel = f"{canvas}.getContext('2d').getImageData(300, 200, 1, 1).data[3]"
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={SENSORS}&id=s-00000'")
    await browser.until(f"!{canvas}.hidden && {pixel}")
    link.swallow(b"s-00001/thermal")
    await browser.ask("evaluate", script=f"location.hash = 'device?fleet={SENSORS}&id=s-00001'")
    await browser.until("document.querySelector('#device-title').textContent === 's-00001'")
    await browser.until(f"!document.querySelector('#device-body').hidden && !{canvas}.hidden")
    assert await browser.ask("evaluate", script=pixel) == 0
    link.swallow(b"")
    await browser.until(pixel)


async def test_masks_are_not_drawn_on_the_picture_of_another_camera(house: House, browser: Browser, link: Link) -> None:
    await house.furnish()
    title, masks, picture = (
        f"document.querySelector('#{name}')" for name in ("device-title", "masks", "masks-picture")
    )
    for camera in ("cam-0", "cam-1"):
        link.swallow(b"cam-1/snapshot.jpg")
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={CAMERAS}&id={camera}'")
        await browser.until(f"{title}.textContent === '{camera}' && !document.querySelector('#device-masks').hidden")
        await browser.ask("click", selector="#device-masks")
        await browser.until(f"{masks}.open")
        if camera == "cam-0":
            await browser.until(f"{picture}.naturalWidth")
            await browser.ask("click", selector="#masks-close")
    assert await browser.ask("evaluate", script=f"{picture}.naturalWidth") == 0
    link.swallow(b"")
    await browser.ask("click", selector="#masks-close")
    await browser.ask("click", selector="#device-masks")
    await browser.until(f"{picture}.naturalWidth")


async def test_no_device_can_be_silenced_while_the_hub_is_away(house: House, browser: Browser, link: Link) -> None:
    await house.furnish()
    await browser.ask("evaluate", script="location.hash = 'devices'")
    press = "document.querySelector('#devices td:last-child button')"
    await browser.until(f"{press} && !{press}.disabled")
    link.refuse()
    await browser.until(f"{press}.disabled")
    link.mend()
    await browser.until(f"!{press}.disabled")
