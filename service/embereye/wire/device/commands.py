"""The bare commands that a server sends to a device: words without a terminator."""

import re
from collections.abc import Iterable

START = "PERIOD_ON"  # send readings and frames continuously
CALIBRATION = "EEPROM1"  # send the EEPROM
REQUEST = "REQUEST1"  # send one frame now


class CommandParser:
    """Finds commands in a stream that has no separators; skips all other bytes."""

    def __init__(self, known: Iterable[str] = (START, CALIBRATION, REQUEST)) -> None:
        by_length = sorted((command.encode() for command in known), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, by_length)) or rb"(?!)")
        self._lookback = max(map(len, by_length), default=1) - 1
        self._left = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the commands that `data` completes, in order. Buffers fewer bytes than the longest command has."""
        text = self._left + data
        end = 0
        commands = []
        for match in self._pattern.finditer(text):
            commands.append(match[0].decode())
            end = match.end()
        self._left = text[max(end, len(text) - self._lookback) :] if self._lookback else b""
        return commands
