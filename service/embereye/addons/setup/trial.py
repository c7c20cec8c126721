"""Try a camera or a sensor, and search the network for cameras, by commands of `embereye` in separate processes.

A decoder that crashes on a strange stream, or takes much memory, does not harm the hub. The password goes to the
process in its environment, which only this user can read.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

USERNAME, PASSWORD = "EMBEREYE_CAMERA_USERNAME", "EMBEREYE_CAMERA_PASSWORD"  # read by both commands
COMMAND = (sys.executable, "-m", "embereye_cli")
LONGEST = 90.0  # seconds of one command
SEARCH_SECONDS = 4
READ_SECONDS = 10  # longest wait for a sensor's reading
LISTED = 40  # lines of notes
PREFIX = "embereye: "  # before the reason why a command failed


class TrialError(Exception):
    """It did not work; the text says why, in the words of the command."""


class Trials:
    """Runs one command at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.picture = b""  # JPEG of the camera tried last; empty: none

    @property
    def is_busy(self) -> bool:
        """True while a command runs."""
        return self._turn.locked()

    async def probe(self, address: str, user: str, password: str) -> dict[str, Any]:
        """Try the camera at `address`, and keep its picture; TrialError."""
        self.picture = b""
        with tempfile.TemporaryDirectory(prefix="embereye-") as folder:
            still = Path(folder) / "still.jpg"
            words = ["camera", "probe", "--json", "--seconds", "3", "--still", str(still), "--", address]
            output, notes = await self._run(words, {USERNAME: user, PASSWORD: password})
            result: dict[str, Any] = json.loads(output)
            if still.exists():
                self.picture = await asyncio.to_thread(still.read_bytes)
        result.pop("still", None)
        return {**result, "picture": bool(self.picture), "notes": notes[-LISTED:]}

    async def read(self, manifests: Sequence[str], device: str, login: Mapping[str, str]) -> dict[str, Any]:
        """Read the sensor `device` of these manifests, and return its newest reading; TrialError.

        `login`, which is not stored yet, replaces the one of its name; empty: those that are stored are used.
        """
        with tempfile.TemporaryDirectory(prefix="embereye-") as folder:
            environment = await asyncio.to_thread(_with_login, Path(folder) / "logins", login) if login else {}
            paths = [Path(folder) / f"{number}.yaml" for number in range(len(manifests))]
            for path, text in zip(paths, manifests, strict=True):
                await asyncio.to_thread(path.write_text, text, "utf-8")
            words = ["sensor", "try", "--json", "--seconds", str(READ_SECONDS), "--", device, *map(str, paths)]
            output, _ = await self._run(words, environment)
        result: dict[str, Any] = json.loads(output)
        return result

    async def search(self) -> dict[str, Any]:
        """Search the network for ONVIF cameras; TrialError."""
        words = ["discover", "--timeout", str(SEARCH_SECONDS)]
        try:
            output, notes = await self._run(words, {USERNAME: "", PASSWORD: ""})
        except TrialError as error:
            return {"cameras": [], "notes": [str(error)]}
        cameras = (yaml.safe_load(output) or {}).get("spec", {}).get("cameras") or []
        return {
            "cameras": [
                {"id": each["id"], "location": each.get("location", ""), "address": each["source"]} for each in cameras
            ],
            "notes": notes[-LISTED:],
        }

    async def _run(self, words: Sequence[str], environment: dict[str, str]) -> tuple[str, list[str]]:
        """Run `embereye WORDS`; return its output and its notes. TrialError with the reason if it fails."""
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *words,
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(LONGEST):
                    output, errors = await process.communicate()
            except TimeoutError as error:
                raise TrialError(f"it took more than {LONGEST:.0f} s") from error
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        notes = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
        if process.returncode:
            raise TrialError(notes[-1].removeprefix(PREFIX) if notes else f"it ended with code {process.returncode}")
        return output.decode(), notes


def _with_login(folder: Path, login: Mapping[str, str]) -> dict[str, str]:
    """Write `login` to `folder`, beside the certificates that are stored under its name; TrialError.

    Returns the environment of a command that uses it.
    """
    from embereye.process.lifecycle import UserError
    from embereye_cli.devices.credentials import FOLDER, default_folder, store

    stored, copied = default_folder() / login["name"], folder / login["name"]
    try:
        folder.mkdir(mode=0o700)
        if stored.is_dir():
            shutil.copytree(stored, copied)
        store(copied, login["user"], login["password"])
    except (OSError, shutil.Error, UserError) as error:
        raise TrialError(str(error)) from error
    return {FOLDER: str(folder)}
