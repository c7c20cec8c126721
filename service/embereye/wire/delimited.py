"""Length-delimited protobuf messages: each has its length in front, as a varint.

There are two readers of the same format. `DelimitedReader` is given bytes and stores an incomplete message; it suits
short messages. `DelimitedBuffers` lends the memory to receive into, so that a long message arrives in the buffer that
it stays in, from a pool that its reader returns it to. Both check a length against their limit before they make room
for the message.
"""

from collections import defaultdict
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_PREFIX = 5  # bytes of a varint below 2^35
LONG = 64 * 1024  # bytes; copying a longer message costs more than another system call
LOOK = 4 * 1024  # bytes to read after a long message, when another long one may follow
LENGTH_DELIMITED = 2  # protobuf's wire type of fields that begin with their length


class DelimitedError(ValueError):
    """The bytes are not a delimited message, or the message is too long."""


class _Memory(bytearray):
    lent = False  # somebody uses it


class Buffers:
    """A pool of reusable buffers for one thread.

    The system clears fresh memory page by page, which takes longer than filling it. The pool retains at most `most`
    bytes of free buffers.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: defaultdict[int, list[_Memory]] = defaultdict(list)
        self.free_bytes = 0  # bytes of free buffers

    def borrow(self, size: int) -> memoryview:
        """Lend a buffer of `size` bytes with arbitrary content."""
        if size < LONG:
            return memoryview(bytearray(size))
        rounded = -(-size // LONG) * LONG
        if free := self._free[rounded]:
            buffer = free.pop()
            self.free_bytes -= rounded
        else:
            buffer = _Memory(rounded)
        buffer.lent = True
        return memoryview(buffer)[:size]

    def put_back(self, data: Buffer) -> None:
        """Return the buffer that `data` is a part of; its borrower no longer reads it. Ignore memory from elsewhere."""
        buffer = data.obj if isinstance(data, memoryview) else None
        if not isinstance(buffer, _Memory) or not buffer.lent:  # returned twice, it would be lent to two borrowers
            return
        buffer.lent = False
        if self.free_bytes + len(buffer) > self._most:  # perhaps in sizes that are not borrowed any more
            self._free.clear()
            self.free_bytes = 0
        if len(buffer) <= self._most:
            self._free[len(buffer)].append(buffer)
            self.free_bytes += len(buffer)


class DelimitedReader:
    """Splits a stream into whole messages and buffers an incomplete one, of at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of an incomplete message."""
        return len(self._rest)

    def take_rest(self) -> bytes:
        """Hand over the incomplete message's bytes, for another reader to continue with."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def receive(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes. DelimitedError: the rest of the stream cannot be read."""
        # Lockstep: `data` is nearly always exactly one short, whole message.
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
        messages, start, end = [], 0, len(source)
        while start < end:
            size, begin = _length(source, start, end, self.limit)
            if begin < 0 or begin + size > end:
                break
            messages.append(bytes(source[begin : begin + size]))
            start = begin + size
        if source is self._rest:
            del self._rest[:start]
        elif start < end:
            self._rest += memoryview(data)[start:]
        return messages


class DelimitedBuffers:
    """Splits a stream that has long messages, which are received into the buffers that they stay in.

    The caller writes bytes into `space` and passes their number to `advance`.
    """

    def __init__(self, limit: int, buffers: Buffers) -> None:
        self.limit = limit
        self._buffers = buffers
        self._common = memoryview(bytearray(LONG))  # starts at the start of a message
        self._common_size = 0  # bytes in `_common`
        self._message: memoryview | None = None  # an incomplete message of known length
        self._arrived = 0  # bytes of `_message`
        self._read_size = LONG  # bytes to read into `_common`; few after a long message, since they are copied

    def space(self) -> memoryview:
        """The memory to receive into next; never empty."""
        if self._message is not None:
            return self._message[self._arrived :]
        return self._common[self._common_size : self._common_size + self._read_size]

    def advance(self, count: int) -> list[bytes | memoryview]:
        """Return the messages that the next `count` bytes of `space` complete. DelimitedError: the rest cannot be read.

        A memoryview comes from `buffers`; its reader puts it back.
        """
        if (message := self._message) is not None:
            self._arrived += count
            if self._arrived < len(message):
                return []
            self._message = None
            return [message]
        return self._split(self._common_size + count)

    def _split(self, end: int) -> list[bytes | memoryview]:
        source, start = self._common, 0
        messages = list[bytes | memoryview]()
        while start < end:
            size, begin = _length(source, start, end, self.limit)
            if begin < 0:
                break
            if begin + size > end:
                self._message = self._buffers.borrow(size)
                self._arrived = end - begin
                self._message[: self._arrived] = source[begin:end]
                self._read_size = LOOK if size >= LONG else LONG
                start = end
                break
            messages.append(bytes(source[begin : begin + size]))
            self._read_size = LONG
            start = begin + size
        self._common_size = end - start
        source[: self._common_size] = bytes(source[start:end])
        return messages


def _length(source: Buffer, start: int, end: int, limit: int) -> tuple[int, int]:
    """(length, start) of the message whose prefix is at `start`; (0, -1) if the prefix is incomplete."""
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
        raise DelimitedError("these bytes do not start with the length of a message")
    return 0, -1


def _too_long(size: int, limit: int) -> str:
    return f"a message of {size} bytes is too long: at most {limit} are accepted"


def delimited(message: bytes) -> bytes:
    """Put the length of `message` in front of it."""
    size = len(message)
    if size < 0x80:
        return bytes((size,)) + message
    if size < 0x4000:
        return bytes((size & 0x7F | 0x80, size >> 7)) + message
    return varint(size) + message


def varint(value: int) -> bytes:
    """Encode `value`, which is not negative, in groups of seven bits, the lowest first."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
