"""Alarms of a hub in this process reach people by real servers."""

import io
import logging
import re
import time
from collections import Counter
from email.utils import formatdate

import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify.channel import Channel
from embereye.addons.notify.incidents import ACKNOWLEDGED
from embereye.addons.notify.messages import MAX_NAMES, Message
from embereye.addons.notify.options import ALARM, FAULT, PRE_ALARM, Escalation, Step
from embereye.hub.actions import Action
from embereye.levels import Level
from embereye.zone.profile import Profile

from .hub_of import options, route, running
from .servers import HttpService, MailServer, mail_server, text_of

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffd9")


async def test_an_alarm_is_an_email_with_zone_reason_and_still(stored: Stored, mail: MailServer) -> None:
    async with running(stored, options(route("mail", mail.url))) as site:
        site.ignite("hall", picture=JPEG)
        await eventually(lambda: mail.received)
    (message,) = mail.received
    assert message["subject"] == "ALARM: default/hall"
    assert "heat 61.3 °C ≥ 57 °C at s-hall" in text_of(message)
    (still,) = message.iter_attachments()
    assert (still.get_content_type(), still.get_content()) == ("image/jpeg", JPEG)


async def test_a_step_follows_until_somebody_acknowledges(
    stored: Stored, mail: MailServer, service: HttpService
) -> None:
    steps = (Step(("phone",)), Step(("mail",), after=0.5))
    escalations = (Escalation("fire", frozenset({ALARM}), steps, repeat=3600),)
    wanted = options(route("phone", service.url), route("mail", mail.url), escalations=escalations)
    async with running(stored, wanted) as site:
        site.ignite()
        await eventually(lambda: service.requests and mail.received)
        assert "Nobody has acknowledged yet." in text_of(mail.received[0])
        await site.act(Action.ACKNOWLEDGE)
        titles = ["ALARM: default/hall", "Acknowledged: default/hall"]
        # A message whose answer came too late on a busy machine is sent again.
        await eventually(lambda: [*dict.fromkeys(service.titles())] == [*dict.fromkeys(mail.subjects())] == titles)
    assert "acknowledged by ada" in text_of(mail.received[-1])


async def test_an_acknowledgement_while_a_message_is_under_way_follows_it(stored: Stored, service: HttpService) -> None:
    async with running(stored, options(route("phone", service.url, timeout=60.0))) as site:
        service.may_answer.clear()
        site.ignite()
        await eventually(lambda: service.requests)
        await site.act(Action.ACKNOWLEDGE)
        await eventually(lambda: all(each.state == ACKNOWLEDGED for each in site.notifier.incidents.incidents.values()))
        service.may_answer.set()
        await eventually(lambda: service.titles() == ["ALARM: default/hall", "Acknowledged: default/hall"])


async def test_a_storm_is_a_message_with_all_names(stored: Stored, service: HttpService) -> None:
    async with running(stored, options(route("phone", service.url), fold=1.0)) as site:
        for number in range(50):
            site.ignite(f"zone-{number}")
        notified = "50 zones"
        await eventually(lambda: any(notified in title for title in service.titles()))
        await eventually(lambda: not site.notifier.incidents.deliveries)
    assert len(service.requests) <= 3
    assert all(f"default/zone-{number}" in service.requests[-1][1]["message"] for number in range(50))


async def test_a_restart_continues_the_escalation_without_doubles(stored: Stored, mail: MailServer) -> None:
    steps = (Step(("mail",)), Step(("mail",), after=1.5), Step(("mail",), after=2.0))
    wanted = options(route("mail", mail.url), escalations=(Escalation("fire", frozenset({ALARM}), steps),), fold=0)
    async with running(stored, wanted) as site:
        site.ignite()
        await eventually(lambda: mail.received and not site.notifier.incidents.deliveries)
    async with running(stored, wanted) as site:
        (incident,) = site.notifier.incidents.incidents.values()
        await eventually(lambda: incident.progress["fire"].step == 3 and not site.notifier.incidents.deliveries)
    assert len(mail.received) in {2, 3}, "steps that are due at once after a long restart are one message"


async def test_an_alarm_from_before_the_first_start_is_told(stored: Stored, mail: MailServer) -> None:
    async with running(stored, options(route("mail", mail.url), escalations=())) as site:
        site.ignite()
        await eventually(site.notifier.incidents.unrouted)
        site.notifier.rows.put("incident", next(iter(site.notifier.incidents.incidents)), None)
        site.notifier.rows.commit()
    async with running(stored, options(route("mail", mail.url))):
        await eventually(lambda: mail.received)
    assert mail.subjects() == ["ALARM: default/hall"]


async def test_a_pre_alarm_and_the_alarm_after_it_are_two_messages(stored: Stored, service: HttpService) -> None:
    every = frozenset({PRE_ALARM, ALARM, FAULT})
    wanted = options(route("phone", service.url), escalations=(Escalation("all", every, (Step(("phone",)),)),))
    async with running(stored, wanted) as site:
        site.ignite("hall", Level.PRE_ALARM)
        await eventually(lambda: len(service.requests) == 1)
        site.ignite("hall", Level.CRITICAL)
        await eventually(lambda: len(service.requests) == 2)
    assert service.titles() == ["Pre-alarm: default/hall", "CRITICAL ALARM: default/hall"]


async def test_a_refusing_service_is_tried_again_when_it_says(stored: Stored, service: HttpService) -> None:
    service.answers = [
        (503, {}), (429, {"Retry-After": "1"}), (429, {"Retry-After": formatdate(time.time() + 2, usegmt=True)}),
    ]  # fmt: skip
    async with running(stored, options(route("phone", service.url))) as site:
        site.ignite()
        await eventually(lambda: len(service.requests) == 4)
        outlet = site.notifier.outlets["phone"]
        await eventually(lambda: outlet.sent)
        assert (outlet.failed, outlet.failing.why) == (3, "")


async def test_a_step_whose_routes_fail_does_not_wait_for_the_next(stored: Stored, mail: MailServer) -> None:
    steps = (Step(("phone",)), Step(("mail",), after=3_600))
    escalations = (Escalation("fire", frozenset({ALARM}), steps),)
    wanted = options(route("phone", "ntfy://127.0.0.1:9/alarms"), route("mail", mail.url), escalations=escalations)
    async with running(stored, wanted) as site:
        site.ignite()
        await eventually(lambda: mail.received)
        assert site.notifier.outlets["phone"].failing.why == "it cannot be reached: Connection refused"


async def test_a_new_alarm_does_not_wait_for_a_route_that_is_known_to_fail(stored: Stored, mail: MailServer) -> None:
    steps = (Step(("phone",)), Step(("mail",), after=3_600))
    escalations = (Escalation("fire", frozenset({ALARM}), steps),)
    wanted = options(route("phone", "ntfy://127.0.0.1:9/alarms"), route("mail", mail.url), escalations=escalations)
    async with running(stored, wanted, pause=3_600) as site:
        for number, zone in enumerate(("hall", "attic")):
            site.ignite(zone)
            await eventually(lambda count=number + 1: len(mail.received) == count)
        assert site.notifier.outlets["phone"].failed == 1
    assert mail.subjects() == ["ALARM: default/hall", "ALARM: default/attic"]


async def test_what_no_service_accepts_is_a_dead_letter_that_can_be_sent_again(stored: Stored) -> None:
    with mail_server() as server:
        url, port = server.url, server.port
    wanted = options(route("mail", url, give_up=0.3))
    async with running(stored, wanted) as site:
        site.ignite()
        await eventually(lambda: site.notifier.incidents.dead("mail"))
    async with running(stored, wanted) as site:
        (dead,) = site.notifier.incidents.dead()
        assert dead.why == "it cannot be reached: Connection refused"
        with mail_server(port) as server:
            assert site.notifier.resend("mail") == 1
            await eventually(lambda: server.received and not site.notifier.incidents.deliveries)


async def test_a_slow_service_delays_no_other(stored: Stored, mail: MailServer, service: HttpService) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        dead = f"ntfy://127.0.0.1:{silent.getsockname()[1]}/alarms"
        wanted = options(route("silent", dead, timeout=1), route("mail", mail.url), route("phone", service.url))
        async with running(stored, wanted) as site:
            site.ignite()
            await eventually(lambda: mail.received and service.requests)
            await eventually(lambda: site.notifier.outlets["silent"].failing)
            assert "no answer within 1 s" in site.notifier.outlets["silent"].failing.why or "timed out" in str(
                site.notifier.outlets["silent"].failing.why
            )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_an_address_of_this_machine_is_refused(stored: Stored, service: HttpService, host: str) -> None:
    url = service.url.replace("127.0.0.1", host)
    async with running(stored, options(route("phone", url, allow=()))) as site:
        site.ignite()
        why = await eventually(lambda: site.notifier.outlets["phone"].failing.why)
    assert "is this machine's address" in why
    assert "the route's allow" in why
    assert not service.requests


async def test_no_log_line_has_a_secret(stored: Stored, service: HttpService) -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    logging.getLogger().addHandler(handler)
    service.answers = [(403, {})] * 3
    url = service.url.replace("127.0.0.1", "user:hunter2-secret@127.0.0.1").replace("alarms", "secret-topic-99")
    async with running(stored, options(route("phone", url))) as site:
        site.ignite()
        await eventually(lambda: site.notifier.outlets["phone"].sent)
    logging.getLogger().removeHandler(handler)
    assert "route phone fails: it answers 403" in lines.getvalue()
    assert "hunter2" not in lines.getvalue()
    assert "secret-topic" not in lines.getvalue()


async def test_quiet_hours_hold_faults_and_never_alarms(stored: Stored, service: HttpService) -> None:
    from datetime import time as clock

    from embereye.addons.notify.options import Quiet
    from embereye.process.timing.hours import Hours

    always = Quiet(Hours(frozenset(range(7)), clock(0), clock(0)))
    escalations = (Escalation("all", frozenset({PRE_ALARM, ALARM}), (Step(("phone",)),)),)
    wanted = options(route("phone", service.url, quiet=(always,)), escalations=escalations)
    async with running(stored, wanted) as site:
        site.ignite("attic", Level.PRE_ALARM)
        await eventually(lambda: site.notifier.incidents.pending("phone"))
        site.ignite("hall")
        await eventually(lambda: service.requests)
        assert Counter(service.titles()) == {"ALARM: default/hall": 1}


async def test_a_message_names_no_more_zones_than_fit_and_the_next_one_the_others(
    stored: Stored, service: HttpService
) -> None:
    async with running(stored, options(route("phone", service.url), fold=0.5)) as site:
        zones = {f"zone-{number}" for number in range(MAX_NAMES + 30)}
        for zone in sorted(zones):
            site.ignite(zone)

        def named() -> set[str]:
            return set(re.findall(r"default/(zone-\d+)", str(service.requests)))

        await eventually(lambda: named() == zones, goal="every zone is named")
        longest = max(len(document["message"]) for _, document, _ in service.requests)
        assert longest < 4_000, "ntfy makes a file of a longer one, and shows no name"


async def test_the_parts_of_a_long_message_are_sent_within_its_time(service: HttpService) -> None:
    lines = "\n".join(f"- default/zone-{number}" for number in range(1_000))  # three parts of 7,800 characters
    assert await Channel(route("phone", service.url, timeout=8.0), time.time).send(Message("ALARM", lines)) is None
    assert len(service.requests) >= 3
    assert len(set(re.findall(r"default/zone-\d+", str(service.requests)))) >= 998, "one may be cut at an edge"


async def test_the_newest_zones_of_a_long_storm_are_named_first(stored: Stored, service: HttpService) -> None:
    async with running(stored, options(route("phone", service.url), fold=0.5)) as site:
        for number in range(MAX_NAMES + 20):
            site.ignite(f"early-{number}")
        await eventually(lambda: service.requests and not site.notifier.incidents.deliveries)
        for name in ("late-1", "late-2"):
            site.ignite(name)
        await eventually(lambda: "late-" in str(service.requests) and not site.notifier.incidents.deliveries)
    messages = "\n".join(document["message"] for _, document, _ in service.requests)
    assert all(f"- default/{name}" in messages or f"default/{name}:" in messages for name in ("late-1", "late-2"))


async def test_an_escalation_for_a_profile_runs_only_in_zones_that_have_it(
    stored: Stored, service: HttpService, mail: MailServer
) -> None:
    alarm = frozenset({ALARM})
    escalations = (
        Escalation("usual", alarm, (Step(("mail",)),), profiles=frozenset({"normal"})),
        Escalation("permits", alarm, (Step(("phone",)),), profiles=frozenset({"welding"})),
    )
    wanted = options(route("phone", service.url), route("mail", mail.url), escalations=escalations)
    async with running(stored, wanted) as site:
        site.hub.zones.profile_of = lambda key: Profile("welding") if key[1] == "hall" else None
        site.ignite("hall")
        site.ignite("attic")
        await eventually(lambda: service.requests and mail.received and not site.notifier.incidents.deliveries)
    assert (service.titles(), mail.subjects()) == (["ALARM: default/hall"], ["ALARM: default/attic"])
