"""The call by which a shard stores margins at the hub: `embereye.v1.Margins/Store`.

Request and answer are bytes: a block in the form of `Block.dump`, and nothing. See `embereye.margins`.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from embereye.margins import Margin
from embereye.process.byte_call import ByteCall

CALL = ByteCall("embereye.v1.Margins", "Store")
LATEST_NS = 2**62  # of a block's times: the year 2116; their sums with the present fit into 63 bits
MAX_CONTENT = 64 * 1024**2  # bytes of a block's content, decompressed


@dataclass(frozen=True)
class Block:
    """The margins of a shard's devices over some seconds. Times are nanoseconds on the shard's clock."""

    fleet: str
    shard: str
    from_ns: int
    until_ns: int
    sent_ns: int
    content: bytes  # compressed lines of JSON, a `Margin` each

    def dump(self) -> bytes:
        """The block as bytes: a line of JSON with everything but the content, then the content."""
        head = {name: value for name, value in vars(self).items() if name != "content"}
        return json.dumps(head).encode() + b"\n" + self.content

    @classmethod
    def load(cls, data: bytes) -> "Block":
        """Read the bytes of `dump`; ValueError if they are invalid."""
        head, _, content = data.partition(b"\n")
        try:
            fields = json.loads(head)
        except RecursionError as error:
            raise ValueError("a block of margins begins with a nested value") from error
        texts, times = ("fleet", "shard"), ("from_ns", "until_ns", "sent_ns")
        if not (
            isinstance(fields, dict)
            and all(isinstance(fields.get(name), str) for name in texts)
            and all(type(fields.get(name)) is int and 0 <= fields[name] < LATEST_NS for name in times)
        ):
            raise ValueError("a block of margins names its fleet, its shard and its times")
        return cls(**{name: fields[name] for name in (*texts, *times)}, content=content)


def line_of(margin: Margin) -> bytes:
    """A margin as a line of a block's content."""
    return json.dumps(margin, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def margins_in(content: bytes, device: str) -> Iterable[Margin]:
    """Yield the margins of `device` in a block's `content`; ValueError if it is damaged."""
    try:
        unpacker = zlib.decompressobj()
        lines = unpacker.decompress(content, MAX_CONTENT)
    except zlib.error as error:
        raise ValueError(f"a block of margins is damaged: {error}") from error
    start = b'{"device":' + json.dumps(device, ensure_ascii=False).encode() + b","
    for line in lines.splitlines():
        if line.startswith(start):
            yield json.loads(line)
