"""Messages with their length in front as a varint, as protobuf's libraries write and read delimited messages."""

from collections import defaultdict
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_PREFIX = 5  # bytes of a varint below 2^35
LONG = 64 * 1024  # bytes of a message from which on copying it costs more than another call of the system
LOOK = 4 * 1024  # bytes that are read of what may be another long message
LENGTH_DELIMITED = 2  # protobuf's wire type of what has its length in front


class DelimitedError(ValueError):
    """What arrived is no such message, or one that is too long."""


class _Memory(bytearray):
    lent = False


class Buffers:
    """Memory that is used again: what the system gives anew it clears page by page, which takes longer than to fill it.

    At most `most` bytes are kept for who takes some next. Used by one thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: defaultdict[int, list[_Memory]] = defaultdict(list)
        self.kept = 0  # bytes

    def take(self, size: int) -> memoryview:
        """So many bytes, whose content is anything."""
        if size < LONG:
            return memoryview(bytearray(size))
        rounded = -(-size // LONG) * LONG
        if free := self._free[rounded]:
            buffer = free.pop()
            self.kept -= rounded
        else:
            buffer = _Memory(rounded)
        buffer.lent = True
        return memoryview(buffer)[:size]

    def put_back(self, data: Buffer) -> None:
        """Nobody looks any more at what was taken, of which `data` is a part. Nothing is done for any other bytes."""
        buffer = data.obj if isinstance(data, memoryview) else None
        if not isinstance(buffer, _Memory) or not buffer.lent:  # put back twice it would be given to two
            return
        buffer.lent = False
        if self.kept + len(buffer) > self._most:  # perhaps of sizes that nobody takes any more
            self._free.clear()
            self.kept = 0
        if len(buffer) <= self._most:
            self._free[len(buffer)].append(buffer)
            self.kept += len(buffer)


class DelimitedReader:
    """Bytes in, whole messages out; what is unfinished stays. At most `limit` bytes of one message are kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not whole yet."""
        return len(self._rest)

    def take_rest(self) -> bytes:
        """What is pending, for another reader to go on with."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that are whole with `data`. DelimitedError: nothing that follows can be read."""
        # Lockstep: nearly always exactly one short message is there, and it is whole.
        if not self._rest and len(data) > 1:
            if data[0] == len(data) - 1 < 0x80:
                return [data[1:]]
            if data[0] & 0x80 and (data[0] & 0x7F) | data[1] << 7 == len(data) - 2 and 0x80 <= len(data) - 2 < 0x4000:
                if len(data) - 2 > self.limit:
                    raise DelimitedError(_too_long(len(data) - 2, self.limit))
                return [data[2:]]
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        source: bytes | bytearray = data
        if self._rest:
            self._rest += data
            source = self._rest
        found, start, end = [], 0, len(source)
        while start < end:
            size, begin = _length(source, start, end, self.limit)
            if begin < 0 or begin + size > end:
                break
            found.append(bytes(source[begin : begin + size]))
            start = begin + size
        if source is self._rest:
            del self._rest[:start]
        elif start < end:
            self._rest += memoryview(data)[start:]
        return found


class DelimitedBuffers:
    """The same for long messages, received into where they stay: bytes go into `space`, and `filled` is told."""

    def __init__(self, limit: int, buffers: Buffers) -> None:
        self.limit = limit
        self._buffers = buffers
        self._common = memoryview(bytearray(LONG))  # begins with the beginning of a message
        self._held = 0  # bytes in it
        self._message: memoryview | None = None  # the one of which a part is here and its length known
        self._arrived = 0  # bytes of it
        self._look = LONG  # bytes to read of what is not known: few after a long message, since they are copied

    def space(self) -> memoryview:
        """Where what is received next is to be put; never empty."""
        if self._message is not None:
            return self._message[self._arrived :]
        return self._common[self._held : self._held + self._look]

    def filled(self, count: int) -> list[bytes | memoryview]:
        """The messages that are whole with these `count` bytes. DelimitedError: nothing that follows can be read.

        A memoryview is of `buffers`, for its reader to put back.
        """
        if (message := self._message) is not None:
            self._arrived += count
            if self._arrived < len(message):
                return []
            self._message = None
            return [message]
        return self._split(self._held + count)

    def _split(self, end: int) -> list[bytes | memoryview]:
        source, start = self._common, 0
        found = list[bytes | memoryview]()
        while start < end:
            size, begin = _length(source, start, end, self.limit)
            if begin < 0:
                break
            if begin + size > end:
                self._message = self._buffers.take(size)
                self._arrived = end - begin
                self._message[: self._arrived] = source[begin:end]
                self._look = LOOK if size >= LONG else LONG
                start = end
                break
            found.append(bytes(source[begin : begin + size]))
            self._look = LONG
            start = begin + size
        self._held = end - start
        source[: self._held] = bytes(source[start:end])
        return found


def _length(source: Buffer, start: int, end: int, limit: int) -> tuple[int, int]:
    """(length, where the message begins) of the one whose prefix is at `start`; (0, -1) where that is not whole."""
    size = shift = 0
    for place in range(start, min(start + MAX_PREFIX, end)):
        byte = source[place]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if size > limit:
                raise DelimitedError(_too_long(size, limit))
            return size, place + 1
        shift += 7
    if end - start >= MAX_PREFIX:
        raise DelimitedError("what arrived is no message with its length in front")
    return 0, -1


def _too_long(size: int, limit: int) -> str:
    return f"a message of {size} bytes is too long: at most {limit} are accepted"


def delimited(message: bytes) -> bytes:
    """`message` with its length in front."""
    size = len(message)
    if size < 0x80:
        return bytes((size,)) + message
    if size < 0x4000:
        return bytes((size & 0x7F | 0x80, size >> 7)) + message
    return varint(size) + message


def varint(value: int) -> bytes:
    """`value`, which is not negative, in groups of seven bits, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
