"""Webhooks of a hub in this process, and a real receiver."""

import asyncio
import base64
import hashlib
import hmac
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web
from harness.eventually import eventually
from harness.servers.certificates import SiteAuthority
from harness.stored import Stored

from embereye.hub import history
from embereye.hub.database import DamagedError, StoreError
from embereye.hub.databases.store import Store
from embereye.hub.hub import Hub
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.events import events_after
from embereye.hub.tables.selection import read_selection
from embereye.hub.tables.webhooks import DeadLetter
from embereye.hub.webhooks import keeper
from embereye.hub.webhooks.options import WebhookOptions
from embereye.hub.webhooks.sender import Sender
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tls.folder import ServerTls
from embereye.units import HOUR, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent

from .receiver import LOOPBACK, Receiver, run

ADA = Principal("ada", Role.OPERATOR, "ada")
SECRET = "whsec_" + base64.b64encode(b"sixteen bytes or more").decode()


async def events(hub: Hub, count: int = 1, zone: str = "hall") -> None:
    """Add `count` durable events."""
    made = [
        AlarmEvent(
            namespace="default", zone=f"{zone}-{number}", type=AlarmEvent.TYPE_TEST, time_ns=hub.timeline.now_ns(),
            why=f"number {number}",
        )
        for number in range(count)
    ]  # fmt: skip
    await hub.committer.commit(lambda draft: hub.zones.add_events(draft, made))


async def test_every_event_is_delivered_once_and_in_order_over_a_restart(stored: Stored, receiver: Receiver) -> None:
    async with run(stored) as hub:
        await events(hub, 3)
    async with run(stored, receiver.options()) as hub:
        await events(hub, 5)
        await eventually(lambda: len(receiver.accepted) == 5)
    async with run(stored) as hub:
        await events(hub, 2)  # while the webhook is not declared
    async with run(stored, receiver.options()) as hub:
        await events(hub, 2)
        await eventually(lambda: hub.webhooks.all()[0].position == 12)  # it advances a moment after the last delivery
        (webhook,) = hub.webhooks.all()
        assert (webhook.delivered, webhook.position, webhook.failing.why) == (4, 12, "")
    assert receiver.cursors == list(range(4, 13)), "a new webhook starts with the next event"
    assert receiver.accepted[0] == {"webhook": "pager", "event": receiver.accepted[0]["event"]}
    assert len({shown["webhook-id"] for shown in receiver.headers}) == 9


async def test_a_temporarily_unreadable_disk_loses_no_delivery(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(tmp_path)
    async with run(stored, receiver.options()) as hub:
        await events(hub)
        await eventually(lambda: receiver.accepted)
    async with run(stored) as hub:
        await events(hub, 600)  # while the webhook is not declared
    refused = list[Exception]()

    def failing(store: Store, after: int, limit: int) -> list[AlarmEvent]:
        if len(refused) > 3:
            return events_after(store, after, limit)
        database = store.db._db  # type: ignore[attr-defined]
        database.set_progress_handler(lambda: 1, 1)
        try:
            return events_after(store, after, limit)
        except StoreError as error:
            refused.append(error)
            raise
        finally:
            database.set_progress_handler(None, 1)

    monkeypatch.setattr("embereye.hub.hub.events_after", failing)
    monkeypatch.setattr(keeper, "STORE_SECONDS", 0.01)
    async with run(stored, receiver.options()):
        await eventually(lambda: len(receiver.accepted) == 601)
    assert receiver.cursors == list(range(1, 602))


async def test_an_event_damaged_in_the_store_is_sent_until_it_is_too_old(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> int:
        raise DamagedError("database disk image is malformed")

    monkeypatch.setattr(keeper, "recorded_ns", damaged)
    receiver.answers = [500] * 5
    async with run(Stored(tmp_path), receiver.options()) as hub:
        await events(hub)
        await eventually(lambda: receiver.accepted)
        assert hub.webhooks.all()[0].dead == 0


async def test_only_selected_events_are_sent(stored: Stored, receiver: Receiver) -> None:
    async with run(stored, receiver.options(selection=read_selection({"zones": ["attic-1"]}))) as hub:
        await events(hub, 2)
        await events(hub, 2, "attic")
        await eventually(lambda: hub.webhooks.all()[0].position == 4)
    assert receiver.cursors == [4]


async def test_a_webhook_without_deliveries_continues_where_it_started(stored: Stored, receiver: Receiver) -> None:
    receiver.answers = [500] * 10_000
    async with run(stored, receiver.options()) as hub:
        await events(hub)
        await eventually(lambda: receiver.bodies)
    receiver.answers = []
    async with run(stored, receiver.options()):
        await eventually(lambda: receiver.accepted)
    assert receiver.cursors == [1]


async def test_events_outside_the_old_selection_are_not_sent_after_it_widens(
    stored: Stored, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "TIDY_SECONDS", 0.05)
    attic = read_selection({"zones": ["attic-0"]})
    async with run(stored, receiver.options(selection=attic), receiver.options("bell", selection=attic)) as hub:
        await events(hub, 1, "attic")
        await events(hub, 300)
        await eventually(lambda: [webhook.position for webhook in hub.webhooks.all()] == [301, 301])
        await eventually(lambda: stored.query("SELECT cursor FROM webhooks ORDER BY name") == [(301,), (301,)])
        await events(hub, 20)
        await eventually(lambda: [webhook.position for webhook in hub.webhooks.all()] == [321, 321])
        hub.feed.close()  # as when the hub stops
        await eventually(lambda: stored.query("SELECT cursor FROM webhooks ORDER BY name") == [(321,), (321,)])
    assert receiver.cursors == [1, 1]
    async with run(stored, receiver.options()) as hub:
        await events(hub, 1)
        await eventually(lambda: len(receiver.accepted) == 3)
    assert receiver.cursors == [1, 1, 322]


async def test_a_delivery_is_signed_by_standard_webhooks_and_has_a_token(
    stored: Stored, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "token").write_text("let-me-in\n")
    receiver.answers = [503]
    options = receiver.options(secret_file=tmp_path / "secret", token_file=tmp_path / "token")
    async with run(stored, options) as hub:
        await events(hub)
        await eventually(lambda: receiver.accepted)
    first, second = receiver.headers
    assert first["webhook-id"] == second["webhook-id"]
    signed = f"{second['webhook-id']}.{second['webhook-timestamp']}.".encode() + receiver.bodies[1]
    digest = hmac.new(b"sixteen bytes or more", signed, hashlib.sha256).digest()
    assert second["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert (second["Authorization"], second["Content-Type"]) == ("Bearer let-me-in", "application/json")


async def test_a_failed_attempt_is_repeated_and_later_events_wait(stored: Stored, receiver: Receiver) -> None:
    receiver.answers = [500, 429, 503, 204]
    async with run(stored, receiver.options()) as hub:
        await events(hub, 3)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.delivered == 3)
        assert len(receiver.accepted) == 3
        assert (webhook.failed, webhook.dead, webhook.failing.why) == (3, 0, "")
    assert receiver.cursors == [1, 2, 3]


@pytest.mark.parametrize("status", [501, 522, 599])
async def test_server_errors_of_a_receiver_or_its_proxy_are_retried(
    stored: Stored, receiver: Receiver, status: int
) -> None:
    receiver.answers = [status]
    async with run(stored, receiver.options()) as hub:
        await events(hub, 2)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.delivered + webhook.dead == 2)
        assert (receiver.cursors, webhook.dead) == ([1, 2], 0)


@pytest.mark.parametrize("status", [400, 401, 404, 410, 302])
async def test_a_final_failure_becomes_a_dead_letter_that_can_be_resent(
    stored: Stored, receiver: Receiver, status: int
) -> None:
    receiver.answers = [status]
    async with run(stored, receiver.options()) as hub:
        await events(hub, 2)
        await eventually(lambda: receiver.cursors == [2])
    async with run(stored, receiver.options()) as hub:
        (webhook,) = hub.webhooks.all()
        assert webhook.dead == 1
        (letter,) = await hub.webhooks.dead_letters("pager", 0, 0)
        assert (letter.cursor, letter.attempts, str(status) in letter.why) == (1, 1, True)
        receiver.answers = [400]
        assert await hub.webhooks.resend(ADA, "pager", [1, 99]) == 1
        await eventually(lambda: webhook.failed)
        await hub.committer.flush(10)
        (letter,) = await hub.webhooks.dead_letters("pager", 0, 0)
        assert (letter.attempts, webhook.dead) == (2, 1)
        assert await hub.webhooks.resend(ADA, "pager") == 1
        await eventually(lambda: webhook.dead == 0)
        assert receiver.cursors == [2, 1]
        await hub.committer.flush(10)
        assert await hub.webhooks.dead_letters("pager", 0, 0) == []
        (entry, _) = await hub.history.audit(0, 2)
        assert (entry.action, entry.subject, entry.detail) == ("resend", "pager", "1 dead letter")
    assert all(shown.get("Host") == f"127.0.0.1:{receiver.port}" for shown in receiver.headers)


async def test_too_old_events_are_given_up_and_the_backlog_is_processed(stored: Stored, receiver: Receiver) -> None:
    receiver.answers = [500] * 4
    async with run(stored, receiver.options(give_up=1e-9)) as hub:
        await events(hub, 5)
        await eventually(lambda: receiver.accepted)
        await hub.committer.flush(10)
        assert [letter.attempts for letter in await hub.webhooks.dead_letters("pager", 0, 9)] == [1, 1, 1, 1]
    assert receiver.cursors == [5]


async def test_a_dead_letter_deleted_with_its_history_is_not_counted(
    stored: Stored, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PRUNE_SECONDS", 0.05)
    monkeypatch.setattr(keeper, "TIDY_SECONDS", 0.05)
    receiver.answers = [400]
    async with run(stored, receiver.options(), retention_ns=1) as hub:
        await events(hub)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.given_up)
        await eventually(lambda: not webhook.dead)
        assert await hub.webhooks.dead_letters("pager", 0, 9) == []
        receiver.answers = [400]
        await events(hub)
        await eventually(lambda: webhook.given_up == 2)
        await eventually(lambda: not webhook.dead)


async def test_resending_many_dead_letters_does_not_compare_each_with_all(
    stored: Stored, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cursor(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Cursor.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    letters = [DeadLetter("pager", Cursor(number), 0, 1, "", AlarmEvent()) for number in range(1, 501)]

    async def dead_letters(name: str, after: int, limit: int) -> list[DeadLetter]:
        return [letter for letter in letters if letter.cursor > after]

    async with run(stored, receiver.options()) as hub:
        monkeypatch.setattr(hub.webhooks, "dead_letters", dead_letters)
        for cursors in ((), [letter.cursor for letter in letters]):
            assert await hub.webhooks.resend(ADA, "pager", cursors) == 500
    assert Cursor.compared < 5_000, "with many letters, the hub would be busy with this only"


@pytest.mark.parametrize(("step", "give_up", "delivered"), [(2 * HOUR, HOUR / SECOND, 1), (-2 * HOUR, 1e-9, 0)])
async def test_setting_the_wall_clock_does_not_change_an_events_age(
    stored: Stored, receiver: Receiver, step: int, give_up: float, delivered: int
) -> None:
    def clock() -> int:
        return time.time_ns() + (step if receiver.bodies else 0)  # set as soon as the first attempt is made

    receiver.answers = [500]
    async with run(stored, receiver.options(give_up=give_up), clock=clock) as hub:
        await events(hub)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.delivered or webhook.dead)
        assert (webhook.delivered, webhook.dead) == (delivered, 1 - delivered)


async def test_secrets_are_read_again_and_unreadable_ones_are_reported(
    stored: Stored, receiver: Receiver, tmp_path: Path
) -> None:
    options = WebhookOptions("pager", url_file=tmp_path / "url", allow=LOOPBACK)
    async with run(stored, options) as hub:
        await events(hub)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.failing)
        assert webhook.failing.why == f"urlFile {tmp_path}/url cannot be read: No such file or directory"
        (tmp_path / "url").write_text(f"http://127.0.0.1:{receiver.port}/found\n")
        await eventually(lambda: receiver.accepted)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_this_machine_is_not_called_unless_allowed(stored: Stored, receiver: Receiver, host: str) -> None:
    options = WebhookOptions("pager", f"http://{host}:{receiver.port}/")
    async with run(stored, options) as hub:
        await events(hub)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.dead)
        assert "To permit it, add" in webhook.failing.why
    assert receiver.bodies == []


async def test_a_test_reports_its_success_or_failure(stored: Stored, receiver: Receiver) -> None:
    async with run(stored, receiver.options()) as hub:
        assert await hub.webhooks.test(ADA, "pager") == ""
        receiver.answers = [401]
        assert await hub.webhooks.test(ADA, "pager") == "it answers 401"
        with pytest.raises(UnknownNameError, match='no webhook "none" is declared'):
            await hub.webhooks.test(ADA, "none")
    assert receiver.accepted[0]["event"]["why"] == "a test of the webhook pager by ada"


async def test_a_webhook_far_behind_delays_nothing_and_misses_nothing(stored: Stored, receiver: Receiver) -> None:
    receiver.answers = [500] * 20
    async with run(stored, receiver.options(give_up=HOUR)) as hub:
        for _ in range(15):
            await events(hub, 100)
        assert hub.feed.latest == 1_500
        await eventually(lambda: len(receiver.accepted) == 1_500)
    assert receiver.cursors == list(range(1, 1_501))


async def test_an_unstored_event_is_delivered_once(
    stored: Stored, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, transaction: object) -> None:
        raise StoreError("database or disk is full")

    receiver.answers = [204, 503]
    async with run(stored, receiver.options()) as hub:
        await events(hub, 1)
        (webhook,) = hub.webhooks.all()
        await eventually(lambda: webhook.position == 1)
        assert await hub.committer.flush(10), "no write of the position is left to fail before the events"
        with monkeypatch.context() as fault:
            fault.setattr(Store, "commit", full)
            writing = asyncio.ensure_future(events(hub, 2, "attic"))
            await eventually(lambda: len(receiver.accepted) == 3)
            assert webhook.position == 1
        await asyncio.gather(writing, return_exceptions=True)
        await eventually(lambda: webhook.position == 3)
        await events(hub, 1)
        await eventually(lambda: len(receiver.accepted) == 4)
    assert receiver.cursors == [1, 2, 3, 4]
    assert not webhook.delivered_ids
    async with run(stored, receiver.options()) as hub:
        await events(hub, 1)
        await eventually(lambda: len(receiver.accepted) == 5)
    assert receiver.cursors[-1] == 5


async def test_a_receiver_may_have_a_certificate_of_its_own_authority(tmp_path: Path, receiver: Receiver) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = (
        SiteAuthority(tmp_path / name).issue("pager", alternatives=["localhost"]) for name in ("ours", "theirs")
    )
    app = web.Application()
    app.router.add_post("/hook", receiver.answer)
    runner = await serve_http(app, "127.0.0.1", 0, ServerTls(ours.folder))
    trusted = tmp_path / "ca.crt"
    options = receiver.options(ca_file=trusted)
    sender = Sender(replace(options, url=f"https://localhost:{bound_port(runner)}/hook"), time.time)
    event = AlarmEvent(cursor=1, zone="hall", namespace="default")

    async def why() -> str:
        refusal = await sender.attempt(event)
        assert refusal is None or not refusal.final
        return refusal.why if refusal else ""

    assert await why() == f"caFile {trusted} cannot be read: No such file or directory"
    trusted.write_text("rubbish")
    assert "has no certificates in PEM format" in await why()
    trusted.write_bytes(theirs.ca.read_bytes())
    assert "certificate" in await why()
    trusted.write_bytes(ours.ca.read_bytes())
    assert await why() == ""
    await sender.close()
    await runner.cleanup()


@pytest.mark.parametrize(("seconds", "wait"), [(40, 40), (900, 300), (-40, 0)])
async def test_a_receiver_requests_a_delay_by_a_date(receiver: Receiver, seconds: int, wait: float) -> None:
    now = 784_111_777

    async def overloaded(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": formatdate(now + seconds, usegmt=True)})

    app = web.Application()
    app.router.add_post("/hook", overloaded)
    runner = await serve_http(app, "127.0.0.1", 0)
    sender = Sender(replace(receiver.options(), url=f"http://127.0.0.1:{bound_port(runner)}/hook"), lambda: now)
    refusal = await sender.attempt(AlarmEvent(cursor=1, zone="hall", namespace="default"))
    assert refusal is not None
    assert (refusal.final, refusal.wait) == (False, wait)
    await sender.close()
    await runner.cleanup()
