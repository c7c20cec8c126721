"""A person escalates an alarm: those who were notified and the next step are notified at once."""

from datetime import time

from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify.options import ALARM, Escalation, Quiet, Step
from embereye.hub.actions import Action
from embereye.levels import Level
from embereye.process.timing.hours import Hours

from .hub_of import ADA, Running, options, route, running
from .servers import HttpService, MailServer, text_of

HOUR = 3_600
ALWAYS = Quiet(Hours(frozenset(range(7)), time(0), time(0)))


async def escalate(site: Running, note: str) -> None:
    await site.hub.actions.perform(Action.ESCALATE, ADA, "default", "hall", "", note)


async def test_escalating_notifies_the_next_step_at_once(
    stored: Stored, mail: MailServer, service: HttpService
) -> None:
    steps = (Step(("guard",)), Step(("chief",), HOUR))
    wanted = options(
        route("guard", mail.url),
        route("chief", service.url, quiet=(ALWAYS,)),
        escalations=(Escalation("fire", frozenset({ALARM}), steps),),
        public_url="http://hub.invalid",
    )
    async with running(stored, wanted) as site:
        site.ignite()
        await eventually(lambda: mail.subjects() == ["ALARM: default/hall"])
        await escalate(site, "bring the keys")
        await eventually(lambda: service.titles() == ["ESCALATED: default/hall"])
        await eventually(lambda: mail.subjects() == ["ALARM: default/hall", "ESCALATED: default/hall"])
        body = service.requests[0][1]["message"]
        assert "escalated by ada: bring the keys; alarm: " in body
        assert "Acknowledge: http://hub.invalid/n/" in body
        (entry,) = [entry for entry in await site.hub.history.audit(0, 10) if entry.action == "escalate"]
        assert (entry.who, entry.subject, entry.detail) == ("ada", "default/hall", "ada: bring the keys")


async def test_an_acknowledged_alarm_can_be_escalated(stored: Stored, mail: MailServer, service: HttpService) -> None:
    steps = (Step(("guard",)), Step(("chief",), HOUR))
    escalations = (Escalation("fire", frozenset({ALARM}), steps, repeat=HOUR, follow_up=False),)
    wanted = options(route("guard", mail.url), route("chief", service.url), escalations=escalations)
    async with running(stored, wanted) as site:
        site.ignite()
        await eventually(lambda: mail.subjects() == ["ALARM: default/hall"])
        await site.act(Action.ACKNOWLEDGE)
        await escalate(site, "it spreads")
        await eventually(lambda: service.titles() == ["ESCALATED: default/hall"])
        await eventually(lambda: mail.subjects() == ["ALARM: default/hall", "ESCALATED: default/hall"])
        (incident,) = site.notifier.incidents.incidents.values()
        assert (incident.state, incident.progress) == ("acknowledged", {}), "an acknowledged alarm does not repeat"
        assert "it spreads" in text_of(mail.received[1])


async def test_an_escalated_pre_alarm_goes_to_those_who_get_alarms(stored: Stored, mail: MailServer) -> None:
    async with running(stored, options(route("guard", mail.url))) as site:
        site.ignite(level=Level.PRE_ALARM)
        await eventually(lambda: site.notifier.incidents.incidents)
        assert mail.subjects() == []
        await escalate(site, "I smell it too")
        await eventually(lambda: mail.subjects() == ["ESCALATED: default/hall"])
