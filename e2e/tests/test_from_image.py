"""The Compose file and the systemd unit start EmberEye from the image alone, by the commands of one-machine.md.

The slow tests type the page's commands in a shell, with three replacements: a folder of the test instead of
/srv/embereye, 127.0.0.1 instead of the machine's address, and no network but loopback instead of the host's, so that no
port is taken on this machine. They need the image in Docker.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.eventually import wait_for
from harness.need import ROOT, SYSTEMD, Need

from deploy.release.__main__ import versions
from embereye_cli.processes import up

COMPOSE, UNIT = ROOT / "deploy/compose.yaml", ROOT / "deploy/embereye.service"
PAGE = (ROOT / "docs/how-to/one-machine.md").read_text()
IMAGE = f"embereye:{versions()}"
PATIENCE = 120.0  # seconds


@cache
def _answers(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        return False


DOCKER_IMAGE = Need(
    "our image in Docker",
    "e2e/cluster/build-image builds it, while a Docker daemon runs",
    lambda: _answers("docker", "image", "inspect", f"{IMAGE}-simulate"),
)
DOCKER_COMPOSE = Need(
    "docker compose", "install Docker's plugin Compose", lambda: _answers("docker", "compose", "version")
)


def compose_service() -> dict[str, Any]:
    """The service of the Compose file, with its variables filled in."""
    text = re.sub(r"\$\{EMBEREYE_IMAGE:-([^}]+)\}", r"\1", COMPOSE.read_text())
    text = re.sub(r"\$\{EMBEREYE_ADVERTISE:\?[^}]+\}", "192.168.1.10", text)
    service: dict[str, Any] = yaml.safe_load(text)["services"]["embereye"]
    return service


def unit_command() -> list[str]:
    """The words of the unit's ExecStart."""
    match = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", UNIT.read_text(), re.MULTILINE)
    assert match
    return shlex.split(match[1].replace("\\\n", " "))


def parse_up(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    up.add_arguments(parser)
    assert words[0] == "up"
    return parser.parse_args(words[1:])


def test_compose_file_and_unit_start_the_same_command_with_valid_options() -> None:
    service, unit = compose_service(), unit_command()
    options = parse_up(service["command"])
    assert service["image"] == IMAGE
    assert [word for word in service["command"] if not word.startswith("--advertise")] == unit[unit.index(IMAGE) + 1 :]
    assert options.advertise == "192.168.1.10"
    bind, data = service["volumes"]
    assert [str(path) for path in options.manifests] == [bind["target"]]
    assert data == f"data:{options.data}"
    assert f"/srv/embereye/fleets.yaml:{bind['target']}:ro" in unit
    assert f"embereye:{options.data}" in unit
    assert {"--read-only", "--init", "no-new-privileges"} <= set(unit)


@pytest.mark.needs(SYSTEMD)
def test_systemd_accepts_the_unit_of_the_image(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    shutil.copy(shutil.which("true") or "/bin/true", docker)
    unit = tmp_path / "embereye.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/docker", str(docker)))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "embereye" in line]) == (0, [])


# --- as printed


def commands(title: str) -> list[str]:
    """The commands of the page's section `title`."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return section.partition("```\n")[2].partition("```")[0].splitlines()


class Shell:
    """Somebody's shell in the folder of their downloads; each command is printed and must succeed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cwd = folder / "downloads"
        self._cwd.mkdir()
        tools = folder / "tools"
        tools.mkdir()
        if not shutil.which("sudo"):  # root has it all
            (tools / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
            (tools / "sudo").chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "USER": "root"}

    def type(self, command: str) -> str:
        done = self.attempt(command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def attempt(self, command: str) -> subprocess.CompletedProcess[str]:
        command = command.replace("/srv/embereye", str(self._folder / "srv")).replace("192.168.1.10", "127.0.0.1")
        print(f"$ {command}", flush=True)
        if command.startswith("cd "):
            self._cwd = Path(command.removeprefix("cd "))
            command = "true"
        done = subprocess.run(
            command, shell=True, cwd=self._cwd, env=self._environment,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        print(done.stdout, done.stderr, flush=True)
        return done

    def download(self, name: str, content: str) -> None:
        (self._cwd / name).write_text(content)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    DOCKER_IMAGE.require()
    return Shell(tmp_path)


def tutorial_fleet() -> str:
    """house.yaml of the first tutorial, with the networks that one-machine.md adds to both fleets."""
    tutorial = (ROOT / "docs/tutorials/first-alarm.md").read_text()
    documents = list(yaml.safe_load_all(tutorial.partition("```yaml\n")[2].partition("```")[0]))
    for document in documents:
        document["spec"]["access"] = {"networks": ["127.0.0.0/8"]}
    return yaml.safe_dump_all(documents)


def see_a_fire(container: str) -> None:
    """Simulate the tutorial's devices beside `container`, until both are covered and their zones alarm."""
    beside = ("docker", "run", "--rm", "--detach", "--network", f"container:{container}")
    fire = "at=20,for=200,zone="
    simulated = [
        ("sensors", "--target", "127.0.0.1:9001", "--devices", "1234=kitchen", "--fire", f"{fire}kitchen"),
        ("cameras", "--listen", "127.0.0.1:8093", "--cameras", "door=hallway", "--fire", f"{fire}hallway"),
    ]
    started = [
        subprocess.check_output([*beside, f"{IMAGE}-simulate", "simulate", *words], text=True).strip()
        for words in simulated
    ]

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "exec", container, "embereye", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def is_alarmed() -> bool:
        return '"ZONE_STATE_ALARM"' in ask("alarms", "list", "--json").stdout

    try:
        wait_for(is_alarmed, "an alarm", PATIENCE)
        wait_for(
            lambda: all(ask("explain", "device", device).returncode == 0 for device in ("1234", "door")),
            "devices that are watched",
            PATIENCE,
        )
    finally:
        subprocess.run(["docker", "rm", "--force", *started], capture_output=True, check=False)


@pytest.fixture
def removed() -> Iterator[list[str]]:
    """Commands that are run after a test."""
    commands: list[str] = []
    yield commands
    for command in commands:
        subprocess.run(command, shell=True, capture_output=True, check=False, timeout=120)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compose_starts_it_as_the_page_prints(shell: Shell, removed: list[str], tmp_path: Path) -> None:
    DOCKER_COMPOSE.require()
    shell.download("compose.yaml", COMPOSE.read_text().replace("network_mode: host", "network_mode: none"))
    shell.download("house.yaml", tutorial_fleet())
    removed.append(f"cd {tmp_path}/srv && docker compose down --volumes")
    typed = commands("From the image, with Docker Compose")
    assert typed[0].startswith("docker load --input embereye-")
    for command in typed[1:-1]:
        shell.type(command)
    wait_for(lambda: "login#" in shell.attempt(typed[-1]).stdout, "a console", PATIENCE)
    state = json.loads(shell.type("docker compose ps --format json").splitlines()[0])
    see_a_fire(state["Name"])
    shell.type("docker compose restart")
    wait_for(lambda: "login#" in shell.attempt(typed[-1]).stdout, "a console after a restart", PATIENCE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_unit_starts_it_as_the_page_prints(shell: Shell, removed: list[str], tmp_path: Path) -> None:
    shell.download("embereye.service", UNIT.read_text())
    shell.download("house.yaml", tutorial_fleet())
    typed = commands("From the image, with systemd")
    assert typed[0].startswith("docker load --input embereye-")
    assert typed[2] == "sudo install --mode=0644 embereye.service /etc/systemd/system/embereye.service"
    shell.type(typed[1])
    # Where no systemd runs, its part is done here: the command is the unit's.
    name = f"embereye-{os.getpid()}"
    removed += [f"docker rm --force {name}", f"docker volume rm {name}"]
    words = [word.replace("/srv/embereye", str(tmp_path / "srv")) for word in unit_command()]
    words = [{"host": "none", "embereye": name}.get(word, word) for word in words]
    words = [re.sub("^embereye:/var", f"{name}:/var", word) for word in words]
    docker = shutil.which("docker")
    assert docker
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([docker, *words[1:]], stdout=log, stderr=log)
    try:

        def link() -> str:
            command = typed[-1].replace("docker exec embereye", f"docker exec {name}").split()
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

        wait_for(lambda: "login#" in link(), (tmp_path / "log").read_text, PATIENCE)
        see_a_fire(name)
    finally:
        subprocess.run(["docker", "stop", name], capture_output=True, check=False, timeout=120)
        process.wait(60)
        print((tmp_path / "log").read_text()[-3000:])
