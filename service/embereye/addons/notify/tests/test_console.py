"""The console's siren, its dialog of routes and pushed messages, in a real Chromium."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.browser import Browser, run_browser
from harness.eventually import eventually
from harness.need import BROWSER
from harness.stored import Stored

from embereye.addons.notify.hub import SCRIPTS_WITHOUT_ROUTES
from embereye.hub.actions import Action

from .hub_of import TOKEN, Running, options, route, running
from .servers import HttpService

pytestmark = [pytest.mark.needs(BROWSER), pytest.mark.parametrize("stored", ["sqlite"], indirect=True)]
CHOICE = "localStorage.setItem('embereye.siren', 'on')"
# Measures what the page sends to the loudspeaker, and collects what it says.
LISTEN = """{
  const connect = AudioNode.prototype.connect, speak = speechSynthesis.speak.bind(speechSynthesis);
  window.spoken = [];
  speechSynthesis.speak = (words) => { window.spoken.push(words.text); speak(words); };
  AudioNode.prototype.connect = function (to, ...rest) {
    if (to === this.context.destination) {
      const analyser = this.context.createAnalyser(), samples = new Float32Array(analyser.fftSize);
      connect.call(this, analyser);
      window.loudness = () => { analyser.getFloatTimeDomainData(samples); return Math.max(...samples); };
    }
    return connect.call(this, to, ...rest);
  };
} 0"""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    BROWSER.require()
    async with run_browser() as window:
        yield window


async def sign_in(browser: Browser, site: Running) -> None:
    await browser.sign_in(f"http://127.0.0.1:{site.port}", TOKEN)


async def siren(browser: Browser, state: str) -> None:
    await browser.until(f"document.body.dataset.siren === '{state}'")


async def test_the_siren_sounds_until_somebody_acknowledges(
    stored: Stored, service: HttpService, browser: Browser
) -> None:
    async with running(stored, options(route("phone", service.url)), http=True) as site:
        await sign_in(browser, site)
        await siren(browser, "off")
        await browser.ask("evaluate", script=LISTEN)
        await browser.ask("click", selector="#siren")
        await browser.until("loudness() > 0.3")
        await siren(browser, "ready")
        await browser.until("spoken.includes('The siren is on.')")
        site.ignite()
        await siren(browser, "sounding")
        await browser.until("loudness() > 0.3")
        await browser.until("spoken.some((text) => text.startsWith('Fire alarm. hall. '))")
        await browser.until("spoken.filter((text) => text.startsWith('Fire alarm.')).length > 1")
        await site.act(Action.ACKNOWLEDGE)
        await siren(browser, "ready")
        await browser.until("loudness() < 0.01")
        assert await browser.ask("problems") == []


async def test_a_siren_that_the_browser_mutes_says_so(stored: Stored, service: HttpService, browser: Browser) -> None:
    async with running(stored, options(route("phone", service.url)), http=True) as site:
        await sign_in(browser, site)
        await browser.ask("evaluate", script=CHOICE)
        await browser.ask("tab", url=f"http://127.0.0.1:{site.port}/#devices")
        await browser.ask("observe", script="document.body.dataset.siren === 'mute'")
        mute = "document.querySelector('#siren-mute').innerText"
        await browser.ask("observe", script=f"{mute}.startsWith('This browser keeps the siren mute.')")
        site.ignite()
        await browser.ask("observe", script=f"{mute}.startsWith('An alarm is open.')")
        await browser.ask("click", selector="#siren-permit")
        await siren(browser, "sounding")
        await browser.until("document.querySelector('#siren-mute').hidden")


async def test_the_siren_sounds_while_timers_and_requests_of_a_hidden_page_wait(
    stored: Stored, service: HttpService, browser: Browser
) -> None:
    async with running(stored, options(route("phone", service.url)), http=True) as site:
        await sign_in(browser, site)
        await browser.ask("click", selector="#siren")
        await siren(browser, "ready")
        await browser.ask("evaluate", script="window.setTimeout = window.setInterval = () => 0")
        for name in ("hall", "attic"):
            site.ignite(name)
            await siren(browser, "sounding")
            await site.act(Action.ACKNOWLEDGE, name)
            await siren(browser, "ready")


async def test_the_dialog_shows_routes_and_tests_them(stored: Stored, service: HttpService, browser: Browser) -> None:
    wanted = options(route("phone", service.url), route("old", "ntfy://127.0.0.1:9/secret-topic", give_up=0.1))
    async with running(stored, wanted, http=True) as site:
        await sign_in(browser, site)
        site.ignite()
        await eventually(site.notifier.incidents.dead)
        await browser.ask("evaluate", script="location.hash = '#devices'")  # page Now has only the alarm
        await browser.ask("click", selector="#notify-open")
        await browser.until("document.querySelectorAll('#notify-routes tr').length === 2")
        await browser.until("document.querySelector('#notify-dead li')")
        text = await browser.text("#notify")
        assert "ALARM: default/hall" in text
        assert "ntfy" in text
        assert "fire: alarm: at once phone, old" in text
        assert "cannot be reached: Connection refused" in text
        assert "secret-topic" not in text
        await browser.ask("click", selector="[aria-label='Test phone']")
        await browser.until("document.querySelector('#notify-routes tr .result').innerText.startsWith('Accepted')")
        await browser.ask("click", selector="[aria-label='Test old']")
        await browser.until(
            "document.querySelectorAll('#notify-routes .result')[1].innerText.startsWith('Not accepted')"
        )
        assert "EmberEye: test message" in service.titles()
        assert await browser.ask("axe") == []
        await browser.ask("click", selector="#notify-resend")
        await browser.until("!document.querySelector('#notify-dead li')")


async def test_a_hub_without_routes_says_how_to_declare_them(stored: Stored, browser: Browser) -> None:
    wanted = options(route("unused", "webpush://"))
    async with running(stored, wanted, http=True, scripts=SCRIPTS_WITHOUT_ROUTES) as site:
        await sign_in(browser, site)
        await browser.until("document.querySelector('#reachable')?.innerText.includes('No message goes to anybody')")
        await browser.ask("click", selector="#notify-open")
        assert "embereye up FLEET.yaml --notify notify.yaml" in await browser.text("#notify")
        assert await browser.ask("axe") == []
        await browser.ask("click", selector="#notify-close")
        await browser.ask("click", selector="#siren")
        await siren(browser, "ready")
        site.ignite()
        await siren(browser, "sounding")


async def test_a_pushed_message_is_shown_and_opens_the_alarm(
    stored: Stored, service: HttpService, browser: Browser
) -> None:
    wanted = options(route("browsers", "webpush://"), route("phone", service.url), public_url="http://localhost")
    async with running(stored, wanted, http=True) as site:
        await sign_in(browser, site)
        await browser.ask("grant", permissions=["notifications"])
        site.ignite()
        await eventually(lambda: service.requests)
        link = next(word for word in service.requests[0][1]["message"].split() if "/n/" in word)
        link = link.replace("http://localhost", f"http://127.0.0.1:{site.port}")
        message = {"title": "ALARM: default/hall", "body": "heat 61.3 °C", "link": link, "kind": "failure"}
        await browser.ask("push", scope="/notify/", data=json.dumps(message))
        shown = await displayed(browser)
        assert (shown["title"], shown["body"], shown["requireInteraction"]) == (message["title"], message["body"], True)
        opened = await browser.ask("worker", path="/notify/worker.js", script=CLICK)
        assert opened == link
        await browser.ask("goto", url=opened)
        assert "Acknowledge this alarm?" in await browser.text("h1")
        await browser.ask("click", selector="button")
        await browser.until("document.querySelector('h1').innerText === 'Done'")


SHOWN = """registration.getNotifications().then((all) => all.map(({ title, body, requireInteraction }) =>
  ({ title, body, requireInteraction })))"""
# Chromium lets only a person's click open a window, so the address is noted instead.
CLICK = """registration.getNotifications().then(([notification]) => new Promise((done) => {
  self.clients.openWindow = (address) => { done(address); return Promise.resolve(null); };
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}))"""


async def displayed(browser: Browser) -> dict[str, Any]:
    """The notification that is shown, once there is one."""
    shown: list[dict[str, Any]] = []

    async def is_shown() -> bool:
        shown[:] = await browser.ask("worker", path="/notify/worker.js", script=SHOWN)
        return bool(shown)

    await eventually(is_shown)
    (notification,) = shown
    return notification
