"""A reply to an SMS acknowledges, if Twilio signed it and its sender got the message."""

import re
from urllib.parse import parse_qs

import aiohttp
import pytest
from apprise.plugins.twilio import NotifyTwilio
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify import replies
from embereye.addons.notify.channel import plugin_of
from embereye.addons.notify.config import parse_config
from embereye.levels import ZoneState
from embereye.process.fields import DeclaredError

from .hub_of import Running, options, route, running
from .servers import HttpService

HUB = "https://fire.example.com"
TOKEN, NUMBER, PATH = "e29dfbcebf390dee9e2f4a1a7b3e5f12", "+4917022222222", "/n/sms/sms"
URL = f"twilio://AC735c307c62944b5a95ef5ccb0dcbf6a5:{TOKEN}@+493011111111/{NUMBER}"


def test_the_signature_is_the_one_in_twilios_documentation() -> None:
    fields = {"CallSid": "CA1234567890ABCDE", "Caller": "+12349013030", "Digits": "1234", "From": "+12349013030",
              "To": "+18005551212"}  # fmt: skip
    assert (
        replies.signature("https://mycompany.com/myapp.php?foo=1&bar=2", fields, "12345")
        == "0/KCTR6DLpKmkAf8muzZqo1nDgQ="
    )


def test_an_sms_is_not_split_within_its_link() -> None:
    assert plugin_of(URL, route("sms", URL)).body_maxlen == 1_600


async def reply(site: Running, text: str, *, sender: str = NUMBER, token: str = TOKEN) -> tuple[int, str]:
    form = {"Body": text, "From": sender, "To": "+493011111111", "MessageSid": "SM1"}
    headers = {"X-Twilio-Signature": replies.signature(HUB + PATH, form, token)}
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{site.port}") as session,
        session.post(PATH, data=form, headers=headers) as response,
    ):
        return response.status, await response.text()


def state(site: Running) -> ZoneState:
    (zone,) = site.hub.zones.messages()
    return ZoneState(zone.state)


async def test_a_reply_with_the_code_acknowledges_once(
    stored: Stored, service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NotifyTwilio, "notify_sms_url", f"http://127.0.0.1:{service.port}/{{sid}}/Messages.json")
    async with running(stored, options(route("sms", URL, replies=True), public_url=HUB), http=True) as site:
        site.ignite()
        await eventually(lambda: service.requests)
        (text,) = parse_qs(service.requests[0][2].decode())["Body"]
        match = re.search(r"Reply (\d{6}) to acknowledge\.$", text)
        assert match, text
        assert "https://" not in text, "a short message"
        assert (await reply(site, f"ack {match[1]}", token="another"))[0] == 403
        assert (await reply(site, f"ack {match[1]}", sender="+4917033333333"))[0] == 403
        status, answer = await reply(site, "what?")
        assert (status, "Reply with the 6 digits" in answer) == (200, True)
        unknown = "000000" if match[1] != "000000" else "000001"
        assert f"No message has the code {unknown}" in (await reply(site, unknown))[1]
        assert state(site) is ZoneState.ALARM
        status, answer = await reply(site, f"ACK {match[1]}")
        assert (status, state(site)) == (200, ZoneState.ACKNOWLEDGED)
        assert "<Message>default/hall: acknowledged.</Message>" in answer
        assert "used already" in (await reply(site, match[1]))[1]
        (entry,) = [entry for entry in await site.hub.history.audit(0, 10) if entry.action == "acknowledge"]
        assert entry.detail == f"{NUMBER} (link to sms): by a reply to a message to sms"


async def test_a_route_without_replies_takes_none(stored: Stored) -> None:
    async with running(stored, options(route("sms", URL, allow=()), public_url=HUB), http=True) as site:
        assert (await reply(site, "123456"))[0] == 404


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f'routes: [{{name: sms, url: "{URL}", replies: true}}]', "publicUrl is missing. Twilio hands replies to it."),
        (f'publicUrl: {HUB}\nroutes: [{{name: a, url: "ntfys://x", replies: true}}]', "only messages by twilio://"),
    ],
)
def test_replies_need_an_address_and_twilio(text: str, sentence: str) -> None:
    with pytest.raises(DeclaredError, match=None) as caught:
        parse_config(text)
    assert sentence in str(caught.value)
