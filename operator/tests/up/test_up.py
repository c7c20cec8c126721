"""`embereye up` as people run it: a real process, real ports, real signals."""

import asyncio
import contextlib
import errno
import json
import os
import re
import resource
import shlex
import signal
import socket
import sqlite3
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from harness.eventually import eventually

from embereye.process.addresses import free_ports
from embereye.process.lifecycle import UserError
from embereye_cli.main import main
from embereye_operator.up.folder import locked

SENSORS = """
apiVersion: embereye.dev/v1alpha1
kind: SensorFleet
metadata: {{name: hall}}
spec:
  sensors:
    - {{id: s-01, zone: hall}}
    - {{id: s-02, zone: stairs}}
  deadline: 2s
  listen: {{tcp: {tcp}, grpc: {grpc}}}
  shards: {shards}
"""


GIVEN: set[int] = set()  # ports used by these tests: the system may offer one again before it is open


def free_port() -> int:
    GIVEN.add(port := free_ports(1, taken=GIVEN)[0])
    return port


@dataclass
class House:
    """A running `embereye up` and its output."""

    process: asyncio.subprocess.Process
    endpoints: dict[str, Any]
    manifest: Path
    data: Path
    tcp: int
    printed: list[str] = field(default_factory=list)

    def devices(self) -> dict[str, Any]:
        return {device["id"]: device for device in self.ask("v1/devices")["devices"]}

    def zones(self) -> dict[str, Any]:
        return {zone["name"]: zone for zone in self.ask("v1/zones")["zones"]}

    def ask(self, path: str, **body: object) -> Any:
        """Return the answer of the console's API with the admin's token."""
        token = Path(self.endpoints["adminTokenFile"]).read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{self.endpoints['console']}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    async def until(self, condition: Callable[[], object], seconds: float = 90) -> None:
        async def is_true() -> object:
            with contextlib.suppress(OSError):
                return await asyncio.to_thread(condition)
            return False

        await eventually(is_true, seconds, pause=0.1)

    def said(self, text: str) -> bool:
        return any(text in line for line in self.printed)

    def pids(self, word: str) -> list[int]:
        """Return the processes below this one whose command line contains `word`."""
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().decode().split("\0")
            except (OSError, ValueError):
                continue
            if parent == self.process.pid and word in command:
                pids.append(int(folder.name))
        return pids


def command(*arguments: str, program: Sequence[str] = ("-m", "embereye_cli")) -> list[str]:
    return [sys.executable, *program, "up", *arguments]


@asynccontextmanager
async def house(
    folder: Path,
    *options: str,
    shards: int = 1,
    name: str = "fleet.yaml",
    more: str = "",
    program: Sequence[str] = ("-m", "embereye_cli"),
) -> AsyncIterator[House]:
    tcp = free_port()
    manifest = folder / name
    manifest.write_text(SENSORS.format(tcp=tcp, grpc=free_port(), shards=shards) + more)
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port()), *options]
    process = await asyncio.create_subprocess_exec(
        *command(str(manifest), "--json", "--data", str(folder / "data"), *ports, program=program),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    printed: list[str] = []
    reading = asyncio.ensure_future(read_lines(process, printed))
    try:
        try:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
        except TimeoutError:
            raise AssertionError("\n".join(["not ready after a minute", *printed, *last_logged(folder)])) from None
        if not line:
            await reading
        assert line, "\n".join(printed)
        yield House(process, json.loads(line), manifest, folder / "data", tcp, printed)
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 60) == 0
        await reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def last_logged(folder: Path) -> list[str]:
    """Return the ends of the logs of hub and shards."""
    return [f"{log.name}: {line}" for log in folder.rglob("*.log") for line in log.read_text().splitlines()[-20:]]


async def read_lines(process: asyncio.subprocess.Process, lines: list[str]) -> None:
    assert process.stderr
    async for line in process.stderr:  # one by one: a test reads them as they arrive
        lines.append(line.decode().rstrip())  # noqa: PERF401


async def talk(running: House, device: str, stop: asyncio.Event) -> None:
    """Simulate a device that sends a quiet reading five times a second, and reconnects after interruptions."""
    while not stop.is_set():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
            while not stop.is_set():
                writer.write(f"#Sensor{device}:ADC1=280,ADC2=1300,ADC3=2,DIO=0!\r\n".encode())
                await writer.drain()
                await asyncio.sleep(0.2)
            writer.close()
        except OSError:
            await asyncio.sleep(0.2)


@asynccontextmanager
async def talking(running: House, *devices: str) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.ensure_future(talk(running, device, stop)) for device in devices]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def refused(*arguments: str, code: int = 2) -> str:
    """Return the error of `embereye up ARGUMENTS`; asserts that it is one sentence with the exit code `code`."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == code
    assert not out
    sentence, *hint = error.decode().splitlines()
    assert hint in ([], ["See: embereye up --help"])
    assert sentence.startswith("embereye: ")
    return " ".join([sentence, *hint])


async def test_two_shards_share_the_fleets_port_and_cover_sending_devices(tmp_path: Path) -> None:
    async with house(tmp_path, shards=2) as running, talking(running, "s-01", "s-02"):
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))
        assert set(running.endpoints["fleets"]["default/sensors/hall"]["shards"]) == {
            "hall-sensors-0",
            "hall-sensors-1",
        }


@pytest.mark.slow
async def test_below_a_path_the_console_its_links_and_commands_work(tmp_path: Path) -> None:
    async with house(tmp_path, "--base-path", "/fire/") as running:
        assert running.endpoints["console"].endswith("/fire/")
        link = running.endpoints["signIn"]
        assert link.startswith(running.endpoints["console"] + "login#")
        assert running.ask("v1/session", code=link.partition("#")[2])["role"] == "admin"
        for words in (["explain", "device", "s-01"], ["access", "link"]):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "embereye_cli",
                *words,
                "--data",
                str(tmp_path / "data"),
                stdout=asyncio.subprocess.PIPE,
            )
            output = (await process.communicate())[0].decode()
            assert "s-01" in output or "login#" in output, words
        assert output.startswith(running.endpoints["console"] + "login#")


async def test_one_printed_link_signs_its_user_in(tmp_path: Path) -> None:
    async with house(tmp_path) as running:
        link = running.endpoints["signIn"]
        assert link.startswith(running.endpoints["console"] + "login#")
        assert running.ask("v1/session", code=link.partition("#")[2])["role"] == "admin"
        with pytest.raises(HTTPError, match="401"):
            running.ask("v1/session", code=link.partition("#")[2])
        assert (tmp_path / "data" / "hub" / "admin-token").stat().st_mode & 0o077 == 0


async def test_a_login_typed_in_the_console_is_stored_where_shards_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EMBEREYE_CREDENTIALS", raising=False)
    monkeypatch.chdir(tmp_path)  # the default folder is below the present one
    async with house(tmp_path) as running:
        login = {"name": "boiler", "user": "ada", "password": "p@ss word"}
        fields = {
            "zone": "cellar", "source": "http://127.0.0.1:9/status.json", "fields": {"temperature": "celsius"},
            "credentialsRef": {"name": "boiler"},
        }  # fmt: skip
        await asyncio.to_thread(
            running.ask, "v1/setup/changes", fleet="default/sensors/hall", action="add", device="boiler",
            fields=fields, login=login, apply=True,
        )  # fmt: skip
        assert (running.data / "credentials" / "boiler" / "password").read_text() == "p@ss word"
        assert "p@ss" not in running.manifest.read_text()


async def test_a_killed_shard_is_restarted_and_covers_its_devices_again(tmp_path: Path) -> None:
    async with house(tmp_path) as running, talking(running, "s-01", "s-02"):
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))
        (pid,) = running.pids("shard")
        os.kill(pid, signal.SIGKILL)
        await running.until(lambda: running.said("hall-sensors-0 was killed by SIGKILL"))
        await running.until(lambda: running.pids("shard") not in ([], [pid]))
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))


@pytest.mark.slow
async def test_a_killed_hub_returns_with_its_alarms_and_raises_none_twice(tmp_path: Path) -> None:
    async with house(tmp_path) as running, talking(running, "s-02"):
        _, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
        for _ in range(5):
            writer.write(b"#Sensors-01:ADC1=4000,ADC2=1300,ADC3=2,DIO=0!\r\n")
            await asyncio.sleep(0.1)
        await running.until(lambda: running.zones()["hall"]["state"] == "ZONE_STATE_ALARM")
        alarm = running.zones()["hall"]["alarm"]
        (pid,) = running.pids("hub")
        os.kill(pid, signal.SIGKILL)
        await running.until(lambda: running.pids("hub") not in ([], [pid]))
        for _ in range(5):
            writer.write(b"#Sensors-01:ADC1=4000,ADC2=1300,ADC3=2,DIO=0!\r\n")
            await asyncio.sleep(0.1)
        await running.until(lambda: running.zones()["hall"]["state"] == "ZONE_STATE_ALARM")
        assert running.zones()["hall"]["alarm"] == alarm
        writer.close()
        assert sum("ALARM default/hall" in line for line in running.printed) == 1


async def smoke(running: House) -> None:
    """Send the readings of s-01 in smoke."""
    _, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
    for _ in range(5):
        writer.write(b"#Sensors-01:ADC1=4000,ADC2=1300,ADC3=2,DIO=0!\r\n")
        await asyncio.sleep(0.1)
    writer.close()


@pytest.mark.slow
async def test_up_shows_alarms_after_a_change_of_the_admins_token(tmp_path: Path) -> None:
    async with house(tmp_path) as running:
        old = {"Authorization": f"Bearer {(tmp_path / 'data/hub/admin-token').read_text().strip()}"}
        (tmp_path / "data/hub/admin-token").write_text("another-token-that-was-made-0123456789abcdef\n")

        def refused() -> bool:
            request = urllib.request.Request(f"{running.endpoints['console']}v1/zones", headers=old)
            try:
                urllib.request.urlopen(request, timeout=20).close()
            except HTTPError as error:
                return error.code == 401
            return False

        await running.until(refused)
        await smoke(running)
        await running.until(lambda: running.said("ALARM default/hall: smoke"), 30)


@pytest.mark.slow
async def test_an_alarm_that_was_not_reset_is_shown_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as running:
        await smoke(running)
        await running.until(lambda: running.said("ALARM default/hall: smoke"))
    async with house(tmp_path) as running:
        await running.until(lambda: running.said("reset the alarm in the console"))
        assert running.said("ALARM default/hall since 20")
        (how,) = [line for line in running.printed if "reset the alarm in the console" in line]
        await smoke(running)
        await running.until(lambda: running.said("default/hall: again: smoke"))
        for words in how.partition(" or with ")[2].split(" && "):
            done = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "embereye_cli", *shlex.split(words)[1:], stdout=asyncio.subprocess.DEVNULL
            )
            assert await asyncio.wait_for(done.wait(), 60) == 0
        assert running.zones()["hall"]["state"] == "ZONE_STATE_NORMAL"


async def test_a_changed_manifest_is_applied_and_an_invalid_one_rejected(tmp_path: Path) -> None:
    async with house(tmp_path) as running:
        good = running.manifest.read_text()
        running.manifest.write_text(good.replace("zone: stairs", "zon: stairs"))
        await running.until(lambda: running.said("change rejected"))
        assert set(running.devices()) == {"s-01", "s-02"}
        running.manifest.write_text(good.replace("id: s-02", "id: s-03"))
        await running.until(lambda: set(running.devices()) == {"s-01", "s-03"})
        for name in ("s-04", "s-05"):  # as an editor saves: a new file replaces it each time
            saved = tmp_path / "saved"
            saved.write_text(good.replace("id: s-02", f"id: {name}"))
            saved.replace(running.manifest)
            await running.until(lambda: set(running.devices()) == {"s-01", name})  # noqa: B023 - awaited here


async def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as running:
        children = running.pids("shard") + running.pids("hub")
        assert len(children) == 2
        await running.until(lambda: set(running.devices()) == {"s-01", "s-02"})
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert not running.said("killing it")  # each ended in time


async def test_processes_of_a_killed_up_end_automatically(tmp_path: Path) -> None:
    tcp = free_port()
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(SENSORS.format(tcp=tcp, grpc=free_port(), shards=1))
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port())]
    process = await asyncio.create_subprocess_exec(
        *command(str(manifest), "--json", "--data", str(tmp_path / "data"), *ports), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    running = House(process, json.loads(line), manifest, tmp_path / "data", tcp)
    children = running.pids("shard") + running.pids("hub")
    assert len(children) == 2
    process.kill()
    await process.wait()
    await running.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.slow
async def test_a_restarted_up_waits_for_the_processes_of_the_killed_one(tmp_path: Path) -> None:
    tcp = free_port()
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(SENSORS.format(tcp=tcp, grpc=free_port(), shards=1))
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port())]

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command(str(manifest), "--json", "--data", str(tmp_path / "data"), *ports),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ready(process: asyncio.subprocess.Process) -> House:
        assert process.stdout
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line, (await process.communicate())[1].decode()
        return House(process, json.loads(line), manifest, tmp_path / "data", tcp)

    first = await start()
    shards = (await ready(first)).pids("shard")
    for pid in shards:
        os.kill(pid, signal.SIGSTOP)
    first.kill()
    await first.wait()
    second = await start()
    try:
        assert second.stderr
        async with asyncio.timeout(60):
            while b"the previous run was killed, and some processes are still ending" not in (
                line := await second.stderr.readline()
            ):
                assert line
        for pid in shards:
            os.kill(pid, signal.SIGCONT)
        await (await ready(second)).until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in shards))
    finally:
        for pid in shards:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        second.send_signal(signal.SIGINT)
        await second.communicate()
    assert second.returncode == 0
    assert not (tmp_path / "data" / "lock").read_text()


def test_a_folder_is_locked_and_unlocked_on_a_full_disk(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for before, killed in (("", False), ("held", True)):
        (tmp_path / "lock").write_text(before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))  # no file takes a byte
        try:
            with locked(tmp_path) as was_killed:
                assert was_killed is killed
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)


async def test_for_ends_automatically(tmp_path: Path) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1))
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port())]
    process = await asyncio.create_subprocess_exec(
        *command(str(manifest), "--for", "500ms", "--data", str(tmp_path / "data"), *ports),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    assert "ready after" in out.decode()


@pytest.mark.slow
async def test_invalid_options_are_refused_in_one_sentence(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data")]
    manifest = tmp_path / "fleet.yaml"
    assert "does not exist" in await refused(str(manifest), *data, code=5)
    manifest.write_text("{")
    assert "not YAML" in await refused(str(manifest), *data)
    manifest.write_bytes(bytes(range(256)))
    assert f"{manifest}: not YAML: byte 0" in await refused(str(manifest), *data)
    manifest.write_text(SENSORS.format(tcp=9001, grpc=50051, shards=1) + "  shards: 2\n")
    assert 'the key "shards" is repeated' in await refused(str(manifest), *data)
    manifest.write_text("# nothing\n")
    assert "contains no manifest" in await refused(str(manifest), *data)
    manifest.write_text(SENSORS.format(tcp=9001, grpc=50051, shards=0))
    assert "spec.shards" in await refused(str(manifest), *data)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        manifest.write_text(SENSORS.format(tcp=port, grpc=free_port(), shards=1))
        free = ["--hub-port", str(free_port()), "--console-port", str(free_port())]
        sentence = await refused(str(manifest), *data, *free)
        assert f"port {port}" in sentence
        assert "is taken" in sentence
        manifest.write_text(SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1))
        assert "--console-port" in await refused(str(manifest), *data, *free[:3], str(port))
    for option, purpose in (("--console-port", "the console"), ("--metrics-port", "metrics")):
        sentence = await refused(str(manifest), *data, *free, option, free[1])
        assert f"port {free[1]} is wanted by {purpose} and by the hub: choose another with {option}" in sentence
    manifest.write_text(f"{manifest.read_text()}---\n{manifest.read_text()}")
    assert "default/sensors/hall is declared twice: rename or remove one" in await refused(str(manifest), *data)


@pytest.mark.slow
async def test_a_hub_that_cannot_be_started_gives_the_reason(tmp_path: Path) -> None:
    manifest, database = tmp_path / "fleet.yaml", tmp_path / "data" / "hub" / "hub.sqlite"
    manifest.write_text(SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1))
    database.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA user_version = 999")
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port())]
    process = await asyncio.create_subprocess_exec(
        *command(str(manifest), "--data", str(tmp_path / "data"), *ports),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    last = output.decode().splitlines()[-1]
    assert last.startswith(f"embereye: the hub cannot be started: {database} was written by a newer version of the hub")


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--for", "soon", "x.yaml"], ["--nonsense", "x.yaml"], ["--console-port", "99999", "x.yaml"],
        ["--hub-port", "0", "x.yaml"], ["--metrics-port", "-1", "x.yaml"],
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_in_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", *arguments])
    out, error = capsys.readouterr()
    sentence, hint = error.splitlines()
    assert (ended.value.code, out, hint) == (2, "", "See: embereye up --help")
    assert sentence.startswith("embereye: ")


@pytest.mark.slow
async def test_other_users_of_the_machine_can_only_read_the_list_of_metrics(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "hub").mkdir(parents=True)  # from an earlier version
    (data / "hub" / "admin-token").write_text("a-token-that-an-earlier-version-made-0123456789")
    (data / "hub").chmod(0o755)
    (data / "mine").mkdir(0o755)  # and a foreign folder
    async with house(tmp_path) as running:
        await running.until(lambda: running.zones()["hall"])

        def readable(folder: Path) -> Iterator[str]:
            for path in folder.iterdir():
                mode = path.lstat().st_mode
                if path.is_dir() and mode & 0o011:
                    yield from readable(path)
                elif mode & 0o044:
                    yield str(path.relative_to(data))

        assert set(readable(data)) == {"prometheus-targets.json"}
        assert (data / "mine").stat().st_mode & 0o777 == 0o755


def test_a_data_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 65533, 65533)  # root's folder would be trusted
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(UserError, match=r"--data .* belongs to another user"), locked(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_root_refuses_a_data_folder_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(UserError, match=r"--data .* belongs to another user"), locked(tmp_path):
        pass


def test_a_data_folder_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UserError, match=r"every user could change its files"), locked(tmp_path):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    data, precious = tmp_path / "data", tmp_path / "precious"
    data.mkdir()
    precious.write_text("as it was")
    (data / "lock").symlink_to(precious)
    with pytest.raises(UserError, match=r"cannot be written"), locked(data):
        pass
    assert precious.read_text() == "as it was"


def test_other_users_cannot_open_the_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o644)
    with locked(tmp_path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_file_of_another_users_run_in_the_data_folder_is_named(tmp_path: Path) -> None:
    foreign = tmp_path / "objects" / "ConfigMap.default.hall.json"
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(foreign))  # root can write everything
    expected = f"{foreign}: cannot be used (Permission denied): make yourself its owner, or choose another --data"
    with pytest.raises(UserError, match=re.escape(expected)), locked(tmp_path):
        raise refused


async def test_an_unreadable_file_in_the_data_folder_is_reported_without_a_traceback(tmp_path: Path) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(SENSORS.format(tcp=free_port(), grpc=free_port(), shards=1))
    folder = tmp_path / "data" / "objects" / "ConfigMap.default.hall.json"
    folder.mkdir(parents=True)
    ports = ["--hub-port", str(free_port()), "--console-port", str(free_port())]
    sentence = await refused(str(manifest), "--data", str(tmp_path / "data"), *ports)
    assert sentence == f"embereye: {folder}: cannot be used (Is a directory): choose another --data"


def test_a_data_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    for name in ("data", "data/below"):
        with pytest.raises(UserError, match=rf"--data .*/{name}: not a folder"), locked(tmp_path / name):
            pass
