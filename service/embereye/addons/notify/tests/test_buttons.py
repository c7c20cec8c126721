"""Buttons of services: the documented forms, and an acknowledgement by one press in ntfy's app."""

import json

import aiohttp
import pytest
from apprise.plugins.slack import NotifySlack
from apprise.plugins.telegram import NotifyTelegram
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify.channel import Channel
from embereye.addons.notify.messages import Message
from embereye.levels import ZoneState

from .hub_of import options, route, running
from .servers import HttpService

LINK = "https://fire.example.com/n/abc.def"
ALARM = Message("ALARM: default/hall", "heat 61.3 °C", link=LINK)
STILL = b"\xff\xd8\xff\xe0 a picture"
KEYBOARD = {"inline_keyboard": [[{"text": "Acknowledge", "url": LINK}]]}


def channel(url: str) -> Channel:
    return Channel(route("team", url), lambda: 0.0)


async def test_a_press_in_the_app_of_ntfy_acknowledges(stored: Stored, service: HttpService) -> None:
    async with running(
        stored, options(route("phone", service.url), public_url="http://hub.invalid"), http=True
    ) as site:
        site.ignite(picture=STILL)
        await eventually(lambda: service.headers)
        press, view = json.loads(service.headers[0]["X-Actions"])
        assert (view["action"], view["url"]) == ("view", press["url"])
        assert (press["action"], press["label"], press["method"]) == ("http", "Acknowledge", "POST")
        address = press["url"].replace("http://hub.invalid", f"http://127.0.0.1:{site.port}")
        async with aiohttp.ClientSession() as session, session.request(press["method"], address) as answer:
            assert answer.status == 200
        (zone,) = site.hub.zones.messages()
        assert ZoneState(zone.state) == ZoneState.ACKNOWLEDGED
        (entry,) = [entry for entry in await site.hub.history.audit(0, 10) if entry.action == "acknowledge"]
        assert entry.who == "link to phone"


async def test_telegram_gets_an_inline_keyboard(monkeypatch: pytest.MonkeyPatch, service: HttpService) -> None:
    monkeypatch.setattr(NotifyTelegram, "notify_url", f"http://127.0.0.1:{service.port}/bot")
    telegram = channel("tgram://123456789:abcdefghijklmnopqrstuvwxyz012345678/12345/?image=no")
    assert await telegram.send(ALARM) is None
    path, document, _ = service.requests[0]
    assert path.endswith("/sendMessage")
    assert document["reply_markup"] == KEYBOARD
    assert LINK in document["text"]
    assert await telegram.send(Message(ALARM.title, ALARM.body, still=STILL, link=LINK)) is None
    path, _, body = service.requests[1]
    assert path.endswith("/sendPhoto")
    assert json.dumps(KEYBOARD).encode() in body
    assert await telegram.send(Message("Over", "over")) is None
    assert "reply_markup" not in service.requests[2][1]


async def test_slack_gets_a_link_button(monkeypatch: pytest.MonkeyPatch, service: HttpService) -> None:
    monkeypatch.setattr(NotifySlack, "webhook_url", f"http://127.0.0.1:{service.port}/services")
    service.text = "ok"
    assert await channel("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/").send(ALARM) is None
    (attachment,) = service.requests[0][1]["attachments"]
    assert attachment["actions"] == [{"type": "button", "text": "Acknowledge", "url": LINK, "style": "primary"}]


async def test_a_message_refused_for_its_button_is_sent_without(
    monkeypatch: pytest.MonkeyPatch, service: HttpService
) -> None:
    monkeypatch.setattr(NotifyTelegram, "notify_url", f"http://127.0.0.1:{service.port}/bot")
    service.answers = [(400, {})]
    assert await channel("tgram://123456789:abcdefghijklmnopqrstuvwxyz012345678/12345/?image=no").send(ALARM) is None
    assert ["reply_markup" in document for _, document, _ in service.requests] == [True, False]
    assert LINK in service.requests[1][1]["text"]
