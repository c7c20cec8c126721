"""Messages with their length in front as a varint, as protobuf's libraries write and read delimited messages."""

MAX_PREFIX = 5  # bytes of a varint below 2^35


class DelimitedError(ValueError):
    """What arrived is no such message, or one that is too long."""


class DelimitedReader:
    """Bytes in, whole messages out; what is unfinished stays. At most `limit` bytes of one message are kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not whole yet."""
        return len(self._rest)

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that are whole with `data`. DelimitedError: nothing that follows can be read."""
        # Lockstep: nearly always exactly one short message is there, and it is whole.
        if not self._rest and len(data) > 1:
            if data[0] == len(data) - 1 < 0x80:
                return [data[1:]]
            if data[0] & 0x80 and (data[0] & 0x7F) | data[1] << 7 == len(data) - 2 and 0x80 <= len(data) - 2 < 0x4000:
                if len(data) - 2 > self.limit:
                    raise DelimitedError(self._too_long(len(data) - 2))
                return [data[2:]]
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        source: bytes | bytearray = data
        if self._rest:
            self._rest += data
            source = self._rest
        found, start, end = [], 0, len(source)
        while start < end:
            size, begin = self._length(source, start)
            if begin < 0 or begin + size > end:
                break
            found.append(bytes(source[begin : begin + size]))
            start = begin + size
        if source is self._rest:
            del self._rest[:start]
        elif start < end:
            self._rest += memoryview(data)[start:]
        return found

    def _length(self, source: bytes | bytearray, start: int) -> tuple[int, int]:
        """(length, where the message begins) of the one whose prefix is at `start`; (0, -1) where that is not whole."""
        size = shift = 0
        for place in range(start, min(start + MAX_PREFIX, len(source))):
            byte = source[place]
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                if size > self.limit:
                    raise DelimitedError(self._too_long(size))
                return size, place + 1
            shift += 7
        if len(source) - start >= MAX_PREFIX:
            raise DelimitedError("what arrived is no message with its length in front")
        return 0, -1

    def _too_long(self, size: int) -> str:
        return f"a message of {size} bytes is too long: at most {self.limit} are accepted"


def delimited(message: bytes) -> bytes:
    """`message` with its length in front."""
    size = len(message)
    if size < 0x80:
        return bytes((size,)) + message
    if size < 0x4000:
        return bytes((size & 0x7F | 0x80, size >> 7)) + message
    prefix = bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + message
