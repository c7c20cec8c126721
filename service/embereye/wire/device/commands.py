"""The bare commands that a server sends to a device: words without any terminator."""

import re
from collections.abc import Iterable

START = "PERIOD_ON"  # send readings and frames continuously
CALIBRATION = "EEPROM1"  # send the EEPROM
REQUEST = "REQUEST1"  # send one frame now


class CommandParser:
    """Finds commands in a stream in which nothing separates them; all other bytes are skipped."""

    def __init__(self, commands: Iterable[str] = (START, CALIBRATION, REQUEST)) -> None:
        by_length = sorted((command.encode() for command in commands), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, by_length)) or rb"(?!)")
        self._keep = max(map(len, by_length), default=1) - 1
        self._left = b""

    def feed(self, data: bytes) -> list[str]:
        """The commands that `data` completes, in order; at most the longest command's bytes are kept for later."""
        text = self._left + data
        end = 0
        found = []
        for match in self._pattern.finditer(text):
            found.append(match[0].decode())
            end = match.end()
        self._left = text[max(end, len(text) - self._keep) :] if self._keep else b""
        return found
