"""Rosters in calendars on the web."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify.config import parse_config
from embereye.addons.notify.options import ALARM, Calendar, Duty, Escalation, NotifyOptions, Step
from embereye.process.fields import DeclaredError

from .hub_of import LOOPBACK, options, route, running
from .servers import HttpService, MailServer

pytest.importorskip("recurring_ical_events", reason="needs pip install 'embereye[notify]'")
from embereye.addons.notify.calendars import MAX_BYTES, BadCalendarError, fetch, turns

HOUR = 3_600.0
BERLIN = ZoneInfo("Europe/Berlin")
PEOPLE = {"Ada": "guard", "Grace": "chief", "mail": "mail"}
HEAD = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\n"


def event(title: str, begin: str, end: str, *lines: str) -> str:
    fields = [f"UID:{title}-{begin}", f"DTSTAMP:{begin.rpartition(':')[2].ljust(15, '0')}Z"[:40], f"SUMMARY:{title}"]
    return "\r\n".join(["BEGIN:VEVENT", *fields, f"DTSTART{begin}", f"DTEND{end}", *lines, "END:VEVENT", ""])


def calendar(*events: str) -> str:
    return f"{HEAD}{''.join(events)}END:VCALENDAR\r\n"


def on_duty(text: str, at: datetime) -> list[str]:
    roster = turns(text, at, PEOPLE)
    return [each for turn in roster if turn.begin <= at.timestamp() < turn.end for each in turn.routes]


def test_events_that_recur_move_and_fall_out_name_who_is_on_duty() -> None:
    nights = event("On call: Ada", ";TZID=Europe/Berlin:20261102T200000", ";TZID=Europe/Berlin:20261103T060000",
                   "RRULE:FREQ=DAILY", "EXDATE;TZID=Europe/Berlin:20261104T200000")  # fmt: skip
    whole = event("ada, grace", ";VALUE=DATE:20261108", ";VALUE=DATE:20261109")
    gone = event("Grace", ":20261105T120000Z", ":20261105T130000Z", "STATUS:CANCELLED")
    text = calendar(nights, whole, gone)
    assert on_duty(text, datetime(2026, 11, 3, 23, tzinfo=BERLIN)) == ["guard"]
    assert on_duty(text, datetime(2026, 11, 4, 5, 59, tzinfo=BERLIN)) == ["guard"]
    assert on_duty(text, datetime(2026, 11, 4, 6, tzinfo=BERLIN)) == []
    assert on_duty(text, datetime(2026, 11, 4, 23, tzinfo=BERLIN)) == [], "that night is excepted"
    assert on_duty(text, datetime(2026, 11, 5, 12, 30, tzinfo=UTC)) == []
    assert on_duty(text, datetime(2026, 11, 8, 12, tzinfo=BERLIN)) == ["guard", "chief"]


def test_a_name_within_a_word_is_nobody() -> None:
    assert on_duty(calendar(event("Adam", ":20261105T120000Z", ":20261105T130000Z")),
                   datetime(2026, 11, 5, 12, 30, tzinfo=UTC)) == []  # fmt: skip


@pytest.mark.parametrize(
    "text", ["<html>Sign in</html>", "", f"{HEAD}BEGIN:VEVENT\r\n", calendar("RRULE:FREQ=SECONDLY\r\n")]
)
def test_what_is_no_roster_is_refused(text: str) -> None:
    with pytest.raises(BadCalendarError):
        turns(text, datetime(2026, 11, 5, tzinfo=UTC), PEOPLE)


@dataclass
class Site:
    """A calendar's server."""

    port: int = 0
    text: str = ""
    status: int = 200
    asked: int = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(text=self.text, status=self.status, content_type="text/calendar")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/private-secret/duty.ics"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site, app = Site(), web.Application()
    app.router.add_get("/private-secret/duty.ics", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.port = int(runner.addresses[0][1])
    yield site
    await runner.cleanup()


def always(title: str) -> str:
    return calendar(event(title, ":20200101T000000Z", ":20990101T000000Z"))


def duty(url: str, stale_after: float) -> Duty:
    source = Calendar(url, people={"Ada": "guard"}, every=0.1, stale_after=stale_after, allow=LOOPBACK)
    return Duty("watch", otherwise=("chief",), calendar=source)


async def test_alarms_go_to_the_person_in_the_calendar_also_while_it_cannot_be_read(
    stored: Stored, site: Site, mail: MailServer, service: HttpService
) -> None:
    def wanted(stale_after: float = HOUR) -> NotifyOptions:
        return options(
            route("guard", mail.url),
            route("chief", service.url),
            duties={"watch": duty(site.url, stale_after)},
            escalations=(Escalation("fire", frozenset({ALARM}), (Step(("watch",)),)),),
        )

    site.text = always("On call: Ada Lovelace")
    async with running(stored, wanted()) as hub:
        calendars = hub.notifier.calendars
        await eventually(lambda: calendars.on_duty(calendars.duties["watch"], hub.notifier.local()) == ("guard",))
        hub.ignite("hall")
        await eventually(lambda: mail.subjects() == ["ALARM: default/hall"])
        await eventually(lambda: not hub.notifier.incidents.deliveries)  # or it would be sent again
        assert service.requests == []
    site.status = 503
    async with running(stored, wanted()) as hub:
        await eventually(lambda: "Its calendar was not read for" in hub.notifier.calendars.problem("watch"))
        hub.ignite("attic")
        await eventually(lambda: "ALARM: default/attic" in mail.subjects())
        await eventually(lambda: not hub.notifier.incidents.deliveries)
        assert service.requests == []
        assert hub.notifier.reachable().problems == ()
    async with running(stored, wanted(stale_after=0.01)) as hub:
        await eventually(lambda: "it answers 503" in hub.notifier.reachable().sentence)
        assert "duty watch: Its calendar was not read for" in hub.notifier.reachable().sentence
        assert "secret" not in hub.notifier.reachable().sentence
        hub.ignite("cellar")
        await eventually(lambda: "ALARM: default/cellar" in mail.subjects())
        await eventually(lambda: "ALARM: default/cellar" in service.titles())


async def test_somebody_without_a_route_is_named_and_the_others_are_notified(
    stored: Stored, site: Site, mail: MailServer, service: HttpService
) -> None:
    site.text = always("Bob")
    wanted = options(
        route("guard", mail.url),
        route("chief", service.url),
        duties={"watch": duty(site.url, HOUR)},
        escalations=(Escalation("fire", frozenset({ALARM}), (Step(("watch",)),)),),
    )
    async with running(stored, wanted) as hub:
        await eventually(lambda: "people without a route: Bob" in hub.notifier.calendars.problem("watch"))
        hub.ignite()
        await eventually(lambda: service.titles() == ["ALARM: default/hall"])


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda site: setattr(site, "text", "x" * (MAX_BYTES + 1)), "it is larger than 2 MB"),
        (lambda site: setattr(site, "status", 404), "it answers 404"),
        (lambda site: setattr(site, "port", 9), "it cannot be reached: Connection refused"),
    ],
)
async def test_a_calendar_that_cannot_be_read_says_why(
    site: Site, prepare: Callable[[Site], None], sentence: str
) -> None:
    prepare(site)
    with pytest.raises(BadCalendarError) as error:
        await asyncio.to_thread(fetch, Calendar(site.url, allow=LOOPBACK))
    assert sentence in str(error.value)
    assert "secret" not in str(error.value)


async def test_an_address_of_this_machine_is_no_calendar(site: Site) -> None:
    with pytest.raises(BadCalendarError) as error:
        await asyncio.to_thread(fetch, Calendar(site.url))
    assert "this machine's address" in str(error.value)
    assert site.asked == 0


FILE = """
routes: [{name: guard, url: "ntfys://a"}, {name: chief, url: "ntfys://b"}]
duty:
  - name: watch
    calendar: {urlFile: duty, people: {Ada Lovelace: guard}, every: 5m, staleAfter: 12h}
    otherwise: chief
"""


def test_a_calendar_is_declared_with_people_and_an_otherwise() -> None:
    source = parse_config(FILE, Path("/etc/notify")).duties["watch"].calendar
    assert source is not None
    assert source.url_file == Path("/etc/notify/duty")
    assert source.people == {"guard": "guard", "chief": "chief", "Ada Lovelace": "guard"}
    assert (source.every, source.stale_after) == (300, 43_200)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (("    otherwise: chief\n", ""), "nobody is on duty where the calendar has no event"),
        (("urlFile: duty", 'url: "file:///etc/passwd"'), "duty[0].calendar.url: it is not the address of a calendar"),
        (("Lovelace: guard", "Lovelace: boss"), 'duty[0].calendar.people.Ada Lovelace: "boss" is no route'),
        (("    otherwise", "    shifts: []\n    otherwise"), "duty[0]: give either shifts or calendar"),
    ],
)
def test_a_mistake_in_a_calendar_is_named(changed: tuple[str, str], sentence: str) -> None:
    assert changed[0] in FILE
    with pytest.raises(DeclaredError) as error:
        parse_config(FILE.replace(*changed, 1))
    assert sentence in str(error.value)
