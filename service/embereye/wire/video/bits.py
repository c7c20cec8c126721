"""Read the bits of a NAL unit's payload, field by field (ITU-T H.264 and H.265, clauses 7.2 and 9)."""

LONGEST = 32  # leading zeros of an Exp-Golomb code; no field needs more


class BitsError(ValueError):
    """The payload ends within a field, or has a code that no field uses."""


class BitReader:
    """Reads `payload` bit by bit, after removing its emulation prevention."""

    def __init__(self, payload: bytes) -> None:
        data = without_emulation_prevention(payload)
        self._value = int.from_bytes(data)
        self._left = 8 * len(data)

    def bits(self, count: int) -> int:
        """Read the next `count` bits as an unsigned number, u(n); BitsError if there are fewer."""
        if count > self._left:
            raise BitsError("it is truncated")
        self._left -= count
        return self._value >> self._left & (1 << count) - 1

    def flag(self) -> bool:
        """Read the next bit, u(1)."""
        return self.bits(1) == 1

    def skip(self, count: int) -> None:
        """Skip `count` bits."""
        self.bits(count)

    def unsigned(self) -> int:
        """Read an unsigned Exp-Golomb code, ue(v)."""
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > LONGEST:
                raise BitsError("a code of more than 65 bits")
        return (1 << zeros) - 1 + self.bits(zeros)

    def signed(self) -> int:
        """Read a signed Exp-Golomb code, se(v)."""
        code = self.unsigned()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def without_emulation_prevention(payload: bytes) -> bytes:
    """Remove the bytes 3 that prevent start codes inside `payload`."""
    if b"\0\0\3" not in payload:
        return payload
    parts, start = [], 0
    while (position := payload.find(b"\0\0\3", start)) >= 0:
        parts.append(payload[start : position + 2])
        start = position + 3
    parts.append(payload[start:])
    return b"".join(parts)
