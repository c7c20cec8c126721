"""Log lines for people and for machines: one record, one line, times in UTC."""

import json
import logging
import os
import re
import sys
import time
from typing import Any

FORMAT_VARIABLE = "EMBEREYE_LOG_FORMAT"  # text or json; the processes that one starts inherit it
FORMATS = ("text", "json")
NOISY = ("grpc", "grpc._cython", "aiohttp.access", "httpx2", "httpcore2")
# A message "device %s: ..." is about that device: what it names becomes a field, whoever wrote it.
PLACEHOLDER = re.compile(r"%(?!%)[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]")
NAMED = re.compile(r"\b(device|sensor|camera|zone|shard|fleet) $")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FIELD = {"sensor": "device", "camera": "device"}


def configure(level: str = "INFO") -> None:
    """Log to standard error in the form that FORMAT_VARIABLE asks for."""
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get(FORMAT_VARIABLE) == "json":
        handler.setFormatter(JsonFormatter())
    else:
        formatter = TextFormatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def visible(text: str) -> str:
    """`text` with its control characters spelt out: on a terminal they would do something else than be read."""
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class TextFormatter(logging.Formatter):
    """One line a record, whatever devices and cameras call themselves: only a traceback has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, in which neither another one can begin nor a terminal be told anything."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """The traceback, with lines of its own and nothing else that a terminal would obey."""
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message, then the fleet, shard, device and zone it is about."""

    def __init__(self) -> None:
        super().__init__()
        # Whose process it is counts for every record, unless it names another.
        known = {"fleet": os.environ.get("EMBEREYE_FLEET"), "shard": os.environ.get("EMBEREYE_SHARD")}
        self._process = {name: value for name, value in known.items() if value}

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
            **_named(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _named(record: logging.LogRecord) -> dict[str, str]:
    """The values of a record's arguments that its message gives a name to."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    found = {}
    for place, match in enumerate(PLACEHOLDER.finditer(record.msg)):
        name = NAMED.search(record.msg[: match.start()])
        if name and place < len(record.args):
            found[FIELD.get(name[1], name[1])] = str(record.args[place])
    return found
