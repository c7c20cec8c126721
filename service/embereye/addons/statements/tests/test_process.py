"""Statements of a hub as a real process, and the command that lists, shows, saves and verifies them."""

import asyncio
import json
import stat
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.addons.statements.tests.chains import TO_MIDNIGHT, Clock, running


async def embereye(*words: str) -> tuple[int, str]:
    """Run a command; its exit code and what it printed."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await command.communicate()
    return command.returncode or 0, output.decode()


def at(hub: HubProcess) -> tuple[str, ...]:
    return ("--console", f"http://127.0.0.1:{hub.http_port}", "--token", hub.token)


def fetch(hub: HubProcess, path: str) -> str:
    """The page at `path`, which runs no script."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{hub.http_port}{path}", headers={"Authorization": f"Bearer {hub.token}"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        return str(answer.read().decode())


async def two_days(stored: Stored) -> None:
    """Let a hub of 2023 make two statements."""
    async with running(stored, Clock()) as site:
        await site.declare("a")
        await site.pass_time(TO_MIDNIGHT + 24 * 60 + 10)
        await site.statements.make_due()


@pytest.mark.slow
async def test_statements_are_listed_shown_saved_and_verified(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    stored = Stored(tmp_path)
    await two_days(stored)
    hub = make_hub(stored, "--site", "mill")
    hub.start()
    await hub.ready()
    code, listed = await embereye("statement", "list", "--days", "400", "--json", *at(hub))
    assert code == 0, listed
    days = [each["day"] for each in json.loads(listed)["statements"]]
    assert {"2023-11-14", "2023-11-15"} <= set(days)
    code, shown = await embereye("statement", "show", "2023-11-15", *at(hub))
    assert (code, "100.00 % of 1440 device-minutes" in shown) == (0, True), shown
    folder = tmp_path / "saved"
    code, text = await embereye("statement", "save", str(folder), *at(hub))
    assert code == 0, text
    _, key = await embereye("statement", "key", *at(hub))
    old = json.loads((folder / "2023-11-15.json").read_text())["key"]
    verify = ("statement", "verify", str(folder), "--key", key.strip(), "--key", old)
    code, text = await embereye(*verify)
    assert (code, "valid." in text) == (0, True), text
    code, text = await embereye("statement", "save", "--pdf", str(folder), *at(hub))
    assert code == 0, text
    pages = [str(folder / f"{day}.pdf") for day in ("2023-11-14", "2023-11-15")]
    code, text = await embereye("statement", "verify", *pages, "--key", old)
    assert (code, "2 days, 2023-11-14 to 2023-11-15: valid." in text) == (0, True), text
    assert text.count("of 1440 device-minutes") == 2, text
    (tmp_path / "cut.pdf").write_bytes((folder / "2023-11-15.pdf").read_bytes()[:2_000])
    code, text = await embereye("statement", "verify", pages[0], str(tmp_path / "cut.pdf"), "--key", old)
    assert (code, "cut.pdf: is a PDF" in text) == (1, True), text
    (folder / "2023-11-15.json").write_bytes((folder / "2023-11-15.json").read_bytes().replace(b"86400", b"86401"))
    code, text = await embereye(*verify)
    assert (code, "the signature does not match" in text) == (1, True), text
    shown = await asyncio.to_thread(fetch, hub, "/v1/statements/2023-11-15/page")
    assert "Statement of watch, mill, 2023-11-15" in shown
    code, text = await embereye("statement", "show", "1999-01-01", *at(hub))
    assert (code, "there is no statement of 1999-01-01" in text) == (5, True), text


async def test_a_new_hub_says_when_the_first_statement_comes(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    hub = make_hub(Stored(tmp_path))
    hub.start()
    await hub.ready()
    assert stat.S_IMODE((tmp_path / "statement-key").stat().st_mode) == 0o600
    code, text = await embereye("statement", "list", *at(hub))
    assert (code, "the first one is made after midnight" in text) == (0, True), text
    code, text = await embereye("statement", "show", "yesterday", *at(hub))
    assert (code, "is not a day such as 2026-11-28" in text) == (2, True), text


async def test_verify_needs_a_key_and_files(tmp_path: Path) -> None:
    code, text = await embereye("statement", "verify", str(tmp_path), "--key", "00" * 32)
    assert (code, "there is no file such as 2026-11-28.json" in text) == (2, True), text
    code, text = await embereye("statement", "verify", str(tmp_path), "--key", "abc")
    assert (code, "neither a key of 64 hexadecimal digits" in text) == (2, True), text
