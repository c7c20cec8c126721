"""Panels report to the hub: their fire alarms are evidence, acknowledged once it is durable."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import eventually
from harness.in_process import running_hub
from harness.stored import Stored
from siadc09 import account as accounts
from siadc09 import message as messages
from siadc09.xdata import Data

from embereye.addons.dc09.hub import Dc09Addon
from embereye.addons.dc09.listener import MAX_BAD, Listener
from embereye.addons.dc09.options import AccountOptions, Dc09Options, ListenOptions
from embereye.hub.hub import Hub
from embereye.levels import Kind, ZoneState
from embereye.process.addresses import free_ports

KEY = "850cba22f7dd4f033405da83e4c5bae9"


@contextlib.asynccontextmanager
async def listening(folder: Path, key: str = "", allow: tuple[Any, ...] = ()) -> AsyncIterator[tuple[Hub, Listener]]:
    file = folder / "key"
    file.write_text(key)
    account = AccountOptions("1234", "old-panel", {3: "hall", 0: "north/yard"}, file if key else None)
    options = ListenOptions(free_ports(1)[0], {"1234": account}, allow=allow)
    addon = Dc09Addon(Dc09Options(listen=options))
    async with running_hub(folder / "hub", lambda: addon) as (hub, parts):
        yield hub, parts.tasks["dc09-listen"].__self__  # type: ignore[attr-defined]


def frame(
    data: str, token: str = "SIA-DCS", *, account: int = 0x1234, key: str = "", ahead: int = 0, sequence: int = 7
) -> bytes:
    config = {
        "idtoken": token, "seqno": sequence, "data": Data(content=data.encode()) if data else None, "xdata": [],
        "timestamp": datetime.now(UTC) + timedelta(seconds=ahead), "encrypted": bool(key),
    }  # fmt: skip
    return bytes(messages.Message(accounts.Account(acct=account, key=key or None), config=config).encode())


async def send(port: int, *frames: bytes, seconds: float = 30.0) -> list[bytes]:
    """Send frames as a panel, and return the answers until the hub closes or does not answer in time."""

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None

    reader, writer = await eventually(connect)
    answers = []
    for each in frames:
        try:
            writer.write(each)
            async with asyncio.timeout(seconds):
                answers.append(await reader.readuntil(b"\r"))
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            answers.append(b"")
    writer.close()
    return answers


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
@pytest.mark.parametrize(("token", "alarm", "restored"), [
    ("SIA-DCS", "#1234|Nri1/FA003", "#1234|Nri1/FR003"), ("ADM-CID", "#1234|1111 01 003", "#1234|3111 01 003"),
])  # fmt: skip
async def test_a_panels_alarm_joins_its_zone_until_it_is_restored(
    token: str, alarm: str, restored: str, key: str, tmp_path: Path
) -> None:
    async with listening(tmp_path, key) as (hub, listener):
        (answer,) = await send(listener.port, frame(alarm, token, key=key))
        parsed = messages.parse_frame(answer, bytes.fromhex(key) if key else None)
        assert (parsed.idtoken, parsed.seq, parsed.encrypted) == ("ACK", 7, bool(key))
        assert Stored(tmp_path / "hub").query("SELECT COUNT(*) FROM evidence") == [(1,)]
        assert hub.zones.states()["default", "hall"] == ZoneState.ALARM
        (zone,) = hub.zones.messages()
        (item,) = zone.contributions
        assert (item.device, Kind(item.kind)) == ("old-panel-zone-3", Kind.SMOKE)
        assert "reported by the panel old-panel, its zone 3" in item.note
        (answer,) = await send(listener.port, frame(restored, token, key=key, sequence=8))
        assert answer
        assert listener.counts["restored"] == 1
        assert not listener._signs


async def test_a_sign_outlives_the_hub_that_heard_it(tmp_path: Path) -> None:
    async with listening(tmp_path) as (hub, listener):
        await send(listener.port, frame("#1234|NGA099"))
        await hub.committer.flush(30)
    async with listening(tmp_path) as (hub, listener):
        await eventually(lambda: hub.zones.states().get(("north", "yard")) == ZoneState.ALARM)
        await send(listener.port, frame("#1234|NGR099"))
        assert not listener._signs


async def test_useless_frames_get_no_acknowledgement_and_are_counted(tmp_path: Path) -> None:
    async with listening(tmp_path, KEY) as (hub, listener):
        good = frame("#1234|NFA003", key=KEY)
        useless = [
            b"\nGARBAGE\r", b"\r", good[:1] + bytes([good[1] ^ 1]) + good[2:],
            frame("#9999|NFA003", account=0x9999, key=KEY),
            frame("#1234|NFA003"),  # not encrypted
        ]  # fmt: skip
        for each in useless:
            assert await send(listener.port, each, seconds=0.3) == [b""]
        assert (listener.counts["damaged"], listener.counts["unknown"]) == (4, 1)
        assert not hub.zones.messages()
        assert await send(listener.port, good) != [b""]


async def test_a_connection_of_garbage_is_closed(tmp_path: Path) -> None:
    async with listening(tmp_path) as (_, listener):
        await send(listener.port, frame("", "NULL"))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"x" * 100_000 + b"\r" + b"\nno frame\r" * MAX_BAD)
        assert await reader.read() == b""
        writer.close()


async def test_a_recorded_encrypted_message_gets_the_time_instead(tmp_path: Path) -> None:
    async with listening(tmp_path, KEY) as (hub, listener):
        (answer,) = await send(listener.port, frame("#1234|NFA003", key=KEY, ahead=-90))
        parsed = messages.parse_frame(answer)
        assert parsed.idtoken == "NAK"
        assert abs(parsed.timestamp - datetime.now(UTC)) < timedelta(seconds=20)
        assert not hub.zones.messages()


async def test_polls_and_other_events_are_acknowledged_and_unknown_formats_not(tmp_path: Path) -> None:
    async with listening(tmp_path) as (hub, listener):
        answers = await send(
            listener.port, frame("", "NULL", sequence=0), frame("#1234|NBA003"), frame("1234", "ACR-SF"),
        )  # fmt: skip
        assert [messages.parse_frame(answer).idtoken for answer in answers] == ["ACK", "ACK", "DUH"]
        assert not hub.zones.messages()


async def test_only_allowed_addresses_may_report(tmp_path: Path) -> None:
    async with listening(tmp_path, allow=(ipaddress.ip_network("10.0.0.0/8"),)) as (_, listener):
        assert await send(listener.port, frame("#1234|NFA003")) == [b""]
        assert listener.counts["rejected"] == 1
