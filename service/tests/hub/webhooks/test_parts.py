import asyncio
import base64
import json
import re
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from embereye.hub.tables.selection import read_selection
from embereye.hub.webhooks.formats import body_of
from embereye.hub.webhooks.guard import GuardedResolver, RefusedAddressError, check_address
from embereye.hub.webhooks.options import WebhookOptions, parse_webhooks, read_webhooks
from embereye.hub.webhooks.sender import Sender
from embereye.hub.webhooks.signing import headers, key_of
from embereye.levels import Level, ZoneState
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, Fault, Silence
from embereye.v1.evidence_pb2 import EvidenceItem


def event(state: ZoneState, previous: ZoneState, **changed: Any) -> AlarmEvent:
    result = AlarmEvent(
        cursor=7, time_ns=1_700_000_060 * SECOND, namespace="plant", zone="hall", alarm="abc",
        type=AlarmEvent.TYPE_STATE, state=state.wire, previous=previous.wire, why="smoke 12 %",
        contributions=[EvidenceItem(device="s-1", level=Level.ALARM.wire, since_ns=1_700_000_000 * SECOND)],
    )  # fmt: skip
    result.MergeFrom(AlarmEvent(**changed))
    return result


def parsed_body(form: str, event: AlarmEvent) -> Any:
    body = body_of(form, "pager", event)
    return json.loads(body) if body else None


# Formats


@pytest.mark.parametrize(
    ("change", "alerts"),
    [
        (event(ZoneState.ALARM, ZoneState.NORMAL), [("firing", "EmberEyeAlarm", "critical")]),
        (event(ZoneState.PRE_ALARM, ZoneState.NORMAL), [("firing", "EmberEyePreAlarm", "warning")]),
        (
            event(ZoneState.ALARM, ZoneState.PRE_ALARM),
            [("resolved", "EmberEyePreAlarm", "warning"), ("firing", "EmberEyeAlarm", "critical")],
        ),
        (event(ZoneState.ACKNOWLEDGED, ZoneState.ALARM, who="Ada"), [("firing", "EmberEyeAlarm", "critical")]),
        (event(ZoneState.NORMAL, ZoneState.RESTORED), [("resolved", "EmberEyeAlarm", "critical")]),
    ],
)
def test_a_zones_state_is_an_alert_of_alertmanager(change: AlarmEvent, alerts: list[tuple[str, str, str]]) -> None:
    body = parsed_body("alertmanager", change)
    labels = [(alert["status"], alert["labels"]["alertname"], alert["labels"]["severity"]) for alert in body["alerts"]]
    assert labels == alerts
    assert (body["version"], body["receiver"], body["status"]) == ("4", "pager", min(status for status, *_ in alerts))
    for alert in body["alerts"]:
        assert (alert["labels"]["zone"], alert["labels"]["alarm"]) == ("hall", "abc")
        assert alert["startsAt"] == "2023-11-14T22:13:20Z"
        assert alert["endsAt"] == ("0001-01-01T00:00:00Z" if alert["status"] == "firing" else "2023-11-14T22:14:20Z")
    again = parsed_body("alertmanager", change)
    assert [alert["fingerprint"] for alert in again["alerts"]] == [alert["fingerprint"] for alert in body["alerts"]]


def test_a_resolved_alert_has_the_labels_of_its_start() -> None:
    began = parsed_body("alertmanager", event(ZoneState.ALARM, ZoneState.NORMAL))["alerts"][0]
    over = parsed_body("alertmanager", event(ZoneState.NORMAL, ZoneState.RESTORED))["alerts"][0]
    assert (began["labels"], began["fingerprint"]) == (over["labels"], over["fingerprint"])


def test_a_dark_device_is_a_separate_alert_and_a_test_is_none() -> None:
    fault = Fault(device="s-9", since_ns=1_700_000_000 * SECOND)
    dark = event(ZoneState.NORMAL, ZoneState.NORMAL)
    dark.type = AlarmEvent.TYPE_FAULT
    dark.fault.CopyFrom(fault)
    (alert,) = parsed_body("alertmanager-api", dark)
    assert (alert["labels"]["alertname"], alert["labels"]["device"]) == ("EmberEyeDeviceFault", "s-9")
    assert (alert["startsAt"], alert["endsAt"]) == ("2023-11-14T22:13:20Z", "2023-12-14T22:14:20Z")
    dark.type = AlarmEvent.TYPE_FAULT_CLEARED
    assert parsed_body("alertmanager-api", dark)[0]["endsAt"] == "2023-11-14T22:14:20Z"
    dark.type = AlarmEvent.TYPE_TEST
    assert parsed_body("alertmanager", dark) is None
    assert parsed_body("generic", dark)["event"]["type"] == "TYPE_TEST"


def test_a_silence_is_an_alert_from_its_start_to_its_end() -> None:
    silenced = event(ZoneState.NORMAL, ZoneState.NORMAL)
    silenced.type = AlarmEvent.TYPE_SILENCE
    since_ns = silenced.time_ns
    silenced.silence.CopyFrom(Silence(device="s-9", who="Ada", since_ns=since_ns, until_ns=since_ns + 60 * SECOND))
    (alert,) = parsed_body("alertmanager", silenced)["alerts"]
    assert (alert["status"], alert["labels"]["alertname"], alert["labels"]["device"]) == (
        "firing", "EmberEyeSilence", "s-9",
    )  # fmt: skip
    silenced.time_ns += 30 * SECOND
    (over,) = parsed_body("alertmanager", silenced)["alerts"]
    assert (over["status"], over["fingerprint"]) == ("resolved", alert["fingerprint"])


# Signatures


def test_a_signature_matches_the_standards_example() -> None:
    """The vector of the Standard Webhooks specification's reference libraries."""
    signed = headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    )
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(("secret", "why"), [("whsec_!", "is not base64"), ("short", "has 5 bytes. Use at least 16")])
def test_an_invalid_secret_is_refused(secret: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        key_of(secret)
    assert key_of("whsec_" + base64.b64encode(bytes(16)).decode()) == bytes(16)
    assert key_of("any text of sixteen characters\n") == b"any text of sixteen characters"


# Addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "①②⑦.⓪.⓪.①", "[::ffff:7f00:1]", "127。0。0。1"])
async def test_no_spelling_of_an_address_bypasses_the_check(host: str) -> None:
    sender = Sender(WebhookOptions("pager", f"http://{host}:9/"), time.time)
    refusal = await sender.attempt(event(ZoneState.ALARM, ZoneState.NORMAL))
    await sender.close()
    assert refusal is not None
    assert refusal.final
    assert "To permit it, add" in refusal.why


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "169.254.169.254", "fe80::1%eth0",
     "0.0.0.0", "::", "224.0.0.1", "ff02::1", "240.0.0.1", "fd00:ec2::254", "100.100.100.200",
     "fd00:ec2::23", "fd20:ce::254", "168.63.129.16", "::ffff:168.63.129.16", "192.0.0.192"],
)  # fmt: skip
def test_addresses_of_this_machine_and_of_clouds_are_not_called(address: str) -> None:
    with pytest.raises(RefusedAddressError, match="To permit it, add"):
        check_address(address, ())


def test_other_and_allowed_addresses_are_called() -> None:
    for address in ("192.0.2.7", "10.1.2.3", "fd12::7", "2001:4860:4860::8888"):
        check_address(address, ())
    check_address("127.0.0.1", (ip_network("127.0.0.0/8"),))
    check_address("::ffff:127.0.0.1", (ip_network("127.0.0.1"),))


async def test_a_name_that_resolves_to_this_machine_is_refused_when_it_is_dialled() -> None:
    resolver = GuardedResolver(())
    with pytest.raises(RefusedAddressError, match="this machine's address"):
        await asyncio.wait_for(resolver.resolve("localhost", 80), 10)
    results = await GuardedResolver((ip_network("127.0.0.0/8"),)).resolve("localhost", 80)
    assert {result["host"] for result in results} == {"127.0.0.1"}
    await resolver.close()


# Options


def test_a_file_declares_webhooks(tmp_path: Path) -> None:
    path = tmp_path / "webhooks.json"
    declared = {
        "name": "pager", "url": "https://pager.example/x", "format": "alertmanager", "secretFile": "/s",
        "tokenFile": "/t",
        "select": {"levels": ["alarm"]}, "timeoutSeconds": 3, "giveUpAfterSeconds": 60, "allow": ["10.0.0.0/8"],
    }  # fmt: skip
    path.write_text(json.dumps({"webhooks": [declared, {"name": "b", "urlFile": "/u", "caFile": "/c"}]}))
    assert read_webhooks(path) == [
        WebhookOptions(
            "pager", "https://pager.example/x", None, "alertmanager", Path("/s"), Path("/t"),
            read_selection({"levels": ["alarm"]}), 3.0, 60.0, (ip_network("10.0.0.0/8"),),
        ),
        WebhookOptions("b", url_file=Path("/u"), ca_file=Path("/c")),
    ]  # fmt: skip
    path.write_text("{")
    with pytest.raises(UserError, match=f"--webhooks {path} is not JSON"):
        read_webhooks(path)
    path.write_text('{"webhooks": [{"name": "a", "url": "https://a.example", "url": "https://b.example"}]}')
    with pytest.raises(UserError, match=f'--webhooks {path}: the key "url" occurs twice'):
        read_webhooks(path)
    with pytest.raises(UserError, match="No such file"):
        read_webhooks(tmp_path / "none")


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"url": "https://x"}, "webhooks[0].name is missing"),
        ({"name": "a"}, "webhooks[0].url: set either url or urlFile"),
        ({"name": "a", "url": "https://x", "urlFile": "/u"}, "webhooks[0].url: set either"),
        ({"name": "a", "url": "ftp://x"}, 'webhooks[0].url: "ftp://x" is not of the form https://HOST/PATH'),
        ({"name": "a", "url": "https://me:secret@x/"}, "webhooks[0].url: it contains a user"),
        ({"name": "a", "url": "http://[::1"}, "is not an address"),
        ({"name": "a", "url": "https://x", "format": "xml"}, 'webhooks[0].format: "xml" is not one of generic, alert'),
        ({"name": "a", "url": "https://x", "select": {"zone": []}}, 'webhooks[0].select: "zone" is not one of'),
        ({"name": "a", "url": "https://x", "timeoutSeconds": 0}, "webhooks[0].timeoutSeconds: 0 is not a number of"),
        ({"name": "a", "url": "https://x", "allow": ["ten"]}, 'webhooks[0].allow[0]: "ten" is not a network'),
        ({"name": "a", "url": "https://x", "retries": 3}, "webhooks[0].retries is not a field. Known here: allow"),
        ({"name": 7, "url": "https://x"}, "webhooks[0].name: 7 is not a text: put it into quotes"),
    ],
)
def test_an_invalid_declaration_is_refused_by_name(declared: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_webhooks({"webhooks": [declared]})


def test_two_webhooks_with_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match="is declared twice"):
        parse_webhooks({"webhooks": [{"name": "a", "url": "https://x"}] * 2})
    with pytest.raises(ValueError, match="is not an object"):
        parse_webhooks([])
