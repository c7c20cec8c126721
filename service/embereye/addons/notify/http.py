"""Routes of notifications: their state, tests, dead letters, and the links in messages.

A link's GET only shows a page, because services and virus scanners open links by themselves. Its button posts.
"""

from collections.abc import Mapping

from aiohttp import web

from embereye.addons.notify import pages
from embereye.addons.notify.channel import phones_of, service_of
from embereye.addons.notify.incidents import Delivery
from embereye.addons.notify.links import BadLinkError
from embereye.addons.notify.notifier import Notifier, Outlet
from embereye.addons.notify.options import OCCASIONS, Escalation
from embereye.addons.notify.proof import CONFIRMED, UNCONFIRMED, UNPROVED, WAITING
from embereye.addons.notify.readers import View
from embereye.addons.notify.replies import PATH, is_signed, spoken
from embereye.addons.notify.webpush import Devices
from embereye.hub.access.keeper import add_entry
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import (
    CHANGES,
    NANOSECONDS,
    WORD,
    Json,
    answer,
    file_of,
    json_body,
    list_of,
    record,
    reference,
    whole,
)
from embereye.hub.http.parameters import read_json
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.roles import Role

HTML, XML = "text/html", "text/xml"
NUMBER: Json = {"type": "number"}
MAX_NAME = 100  # characters of the name that a person gives


class NotifyRoutes:
    """Serves what notifications do."""

    def __init__(self, notifier: Notifier, devices: Devices) -> None:
        self._notifier = notifier
        self._devices = devices
        self._services: dict[str, str] = {}  # by route

    @Route(
        "GET", "/v1/notify/push", Role.VIEWER, "The hub's key for Web Push, and the routes that use it",
        {200: answer("the key in base64url", record({"key": WORD, "routes": list_of(WORD)}))},
        scoped=True,
    )  # fmt: skip
    async def _push_key(self, request: web.Request) -> web.Response:
        outlets = self._view(request).outlets
        routes = [name for name, outlet in outlets.items() if outlet.route.is_web_push]
        return web.json_response({"key": self._devices.public_key() if routes else "", "routes": routes})

    @Route(
        "POST", "/v1/notify/push", Role.VIEWER, "Subscribe a browser to Web Push, to news about the caller's zones",
        {200: answer("it is subscribed", record({}))},
        fails=CHANGES,
        body=json_body(record({"endpoint": WORD, "keys": record({"p256dh": WORD, "auth": WORD})})),
        scoped=True,
    )  # fmt: skip
    async def _subscribe(self, request: web.Request) -> web.Response:
        self._devices.add(await read_json(request), request[PRINCIPAL])
        return web.json_response({})

    @Route(
        "GET", "/v1/notify", Role.VIEWER, "Routes to people, and how they do",
        {200: answer("in the order of their declaration", reference("Notify"))},
        scoped=True,
    )  # fmt: skip
    async def _status(self, request: web.Request) -> web.Response:
        for name, outlet in self._notifier.outlets.items():
            if not self._services.get(name):
                self._services[name] = service_of(outlet.route)
        return web.json_response(status(self._view(request), self._services))

    def _view(self, request: web.Request) -> View:
        """The notifications of the caller's zones."""
        return self._notifier.view(request[PRINCIPAL].scope)

    @Route(
        "POST", "/v1/notify/routes/{route}/test", Role.OPERATOR, "Send a test message by a route",
        {200: answer("the outcome", record({"failed": WORD}))},
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _test(self, request: web.Request) -> web.Response:
        by, name = request[PRINCIPAL], request.match_info["route"]
        self._view(request).find(name)
        await self._notifier.hub.committer.commit(lambda draft: add_entry(draft, by, "test route", name))
        refusal = await self._notifier.test(name, by.name)
        return web.json_response({"failed": refusal.why if refusal else ""})

    @Route(
        "GET", "/v1/notify/dead", Role.VIEWER, "News that a route gave up",
        {200: answer("the oldest first", record({"dead": list_of(reference("DeadNews"))}))},
        scoped=True,
    )  # fmt: skip
    async def _dead(self, request: web.Request) -> web.Response:
        dead = sorted(self._view(request).visible(self._notifier.incidents.dead()), key=lambda each: each.dead_ns)
        return web.json_response({"dead": [self._described(each) for each in dead[:1_000]]})

    @Route(
        "POST", "/v1/notify/dead/resend", Role.OPERATOR, "Send news again that routes gave up",
        {200: answer("how many", record({"resent": whole()}))},
        fails=(503,),
        scoped=True,
    )  # fmt: skip
    async def _resend(self, request: web.Request) -> web.Response:
        by = request[PRINCIPAL]
        await self._notifier.hub.committer.commit(lambda draft: add_entry(draft, by, "resend", "notifications"))
        return web.json_response({"resent": self._notifier.resend(scope=by.scope)})

    @Route(
        "GET", "/n/{token}", None, "Ask before the link of a message acts", {200: file_of("the page", HTML)},
        fails=(410,),
    )  # fmt: skip
    async def _ask(self, request: web.Request) -> web.Response:
        try:
            return _page(pages.ask(*self._notifier.open_link(request.match_info["token"])))
        except BadLinkError as error:
            return _page(pages.refuse(str(error)), 410)

    @Route(
        "POST", "/n/{token}", None, "Acknowledge or confirm by the link of a message", {200: file_of("the page", HTML)},
        fails=(410, 503),
    )  # fmt: skip
    async def _act(self, request: web.Request) -> web.Response:
        form = await request.post()
        who = "".join(letter for letter in str(form.get("who", ""))[:MAX_NAME] if letter.isprintable()).strip()
        try:
            sentences = await self._notifier.use_link(request.match_info["token"], who, request.remote or "")
        except BadLinkError as error:
            return _page(pages.refuse(str(error)), 410)
        return _page(pages.done(sentences))

    @Route(
        "POST", "/n/sms/{route}", None, "Do what a message asks for, by a reply to it that Twilio hands over",
        {200: file_of("the answer, in TwiML", XML)},
        fails=(403, 404, 503),
    )  # fmt: skip
    async def _reply(self, request: web.Request) -> web.Response:
        name = request.match_info["route"]
        outlet = self._notifier.outlets.get(name)
        if outlet is None or not outlet.route.replies:
            raise Refused(404, "no route of this name takes replies")
        form = {key: str(value) for key, value in (await request.post()).items()}
        phones = phones_of(outlet.route)
        url = f"{self._notifier.options.public_url}{PATH}{name}"
        if phones is None or not is_signed(request.headers.get("X-Twilio-Signature", ""), url, form, phones.token):
            raise Refused(403, "Twilio did not sign this with the token of the route's account")
        who = form.get("From", "").removeprefix("whatsapp:")
        if who not in phones.numbers:
            raise Refused(403, "the route sends no messages to this number")
        try:
            token = self._notifier.codes.token(name, form.get("Body", ""))
            sentences = await self._notifier.use_link(token, who, request.remote or "", "a reply to")
        except BadLinkError as error:
            sentences = [str(error)]
        return web.Response(text=spoken("\n".join(sentences)), content_type=XML)

    def _described(self, delivery: Delivery) -> Json:
        incident = self._notifier.incidents.incidents[delivery.incident]
        return {
            "route": delivery.route, "zone": incident.title, "news": delivery.news, "attempts": delivery.attempts,
            "why": delivery.why, "diedNs": str(delivery.dead_ns),
        }  # fmt: skip


def _page(text: str, status: int = 200) -> web.Response:
    # Without a referrer for its own form, a browser would send "null" as the form's origin.
    headers = {"Content-Security-Policy": pages.POLICY, "Referrer-Policy": "same-origin"}
    return web.Response(text=text, content_type=HTML, status=status, headers=headers)


def status(view: View, services: Mapping[str, str]) -> Json:
    """Describe the notifications in `view`; the `services` of all routes have names."""
    notifier = view.notifier
    reachable, calendars, at = notifier.reachable(view), notifier.calendars, notifier.local()
    return {
        "reachable": not reachable.problems,
        "reached": reachable.reached,
        "sentence": reachable.sentence,
        "unrouted": [incident.title for incident in notifier.incidents.unrouted() if view.has_incident(incident)],
        "routes": [_route(view, outlet, services[name]) for name, outlet in view.outlets.items()],
        "duties": [
            {
                "name": name,
                "routes": [route for route in calendars.on_duty(duty, at) if route in view.outlets],
                "problem": calendars.problem(name),
            }
            for name, duty in view.duties.items()
        ],
        "escalations": [_escalation(escalation) for escalation in view.escalations],
    }


def _escalation(escalation: Escalation) -> Json:
    steps = [{"afterSeconds": step.after, "routes": list(step.routes)} for step in escalation.steps]
    return {
        "name": escalation.name, "occasions": [each for each in OCCASIONS if each in escalation.occasions],
        "zones": list(escalation.zones), "steps": steps, "repeatSeconds": escalation.repeat,
    }  # fmt: skip


def _route(view: View, outlet: Outlet, service: str) -> Json:
    notifier, name = view.notifier, outlet.route.name
    return {
        "name": name,
        "service": service,
        "failing": outlet.failing.why,
        "waiting": len(view.visible(notifier.incidents.pending(name))),
        "deadLetters": len(view.visible(notifier.incidents.dead(name))),
        "proof": notifier.proofs[name].state(outlet.route.canary, notifier.now_ns()),
        "sent": outlet.sent,
        "sentNs": str(outlet.sent_ns),
        "zones": list(outlet.route.scope.patterns) if not view.scope.is_limited else [],
        "recent": [
            {"timeNs": str(each.time_ns), "title": title, "failed": each.why}
            for each in outlet.recent
            if (title := view.title(each))
        ],
    }


def schemas() -> Mapping[str, Json]:
    """Describe the answers."""
    route = record(
        {
            "name": WORD,
            "service": {"type": "string", "description": "such as ntfy; empty: its file cannot be read"},
            "failing": {"type": "string", "description": "why its latest attempt failed; empty: it did not"},
            "proof": {"type": "string", "enum": [CONFIRMED, WAITING, UNCONFIRMED, UNPROVED]},
            "waiting": whole(), "deadLetters": whole(),
            "sent": {**whole(), "description": "messages about all zones"}, "sentNs": NANOSECONDS,
            "zones": {**list_of(WORD), "description": "that it is limited to; empty: all, or not for the caller"},
            "recent": list_of(record({"timeNs": NANOSECONDS, "title": WORD, "failed": WORD})),
        }
    )  # fmt: skip
    duty = record({"name": WORD, "routes": list_of(WORD), "problem": WORD})
    step = record({"afterSeconds": NUMBER, "routes": list_of(WORD)})
    escalation = record(
        {
            "name": WORD, "occasions": list_of({"type": "string", "enum": list(OCCASIONS)}), "zones": list_of(WORD),
            "steps": list_of(step), "repeatSeconds": NUMBER,
        }
    )  # fmt: skip
    dead = record({"route": WORD, "zone": WORD, "news": WORD, "attempts": whole(), "why": WORD, "diedNs": NANOSECONDS})
    state = record(
        {
            "reachable": {"type": "boolean", "description": "no route is dead or unconfirmed"},
            "reached": whole(), "sentence": WORD,
            "unrouted": {**list_of(WORD), "description": "zones in alarm for which no escalation is declared"},
            "routes": list_of(route),
            "duties": {**list_of(duty), "description": "who is on duty now"},
            "escalations": list_of(escalation),
        }
    )  # fmt: skip
    return {"Notify": state, "DeadNews": dead}
