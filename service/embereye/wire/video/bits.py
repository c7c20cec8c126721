"""Bits of a NAL unit's payload, read one field after another (ITU-T H.264 and H.265, clauses 7.2 and 9)."""

LONGEST = 32  # leading zeros of an Exp-Golomb code; no field needs more


class BitsError(ValueError):
    """The payload ends within a field, or holds a code that no field has."""


class BitReader:
    """Reads `payload`, from which emulation prevention is removed first, bit by bit."""

    def __init__(self, payload: bytes) -> None:
        data = without_emulation_prevention(payload)
        self._value = int.from_bytes(data)
        self._left = 8 * len(data)

    def bits(self, count: int) -> int:
        """The next `count` bits as an unsigned number, u(n); BitsError where there are fewer."""
        if count > self._left:
            raise BitsError("it is cut short")
        self._left -= count
        return self._value >> self._left & (1 << count) - 1

    def flag(self) -> bool:
        """The next bit, u(1)."""
        return self.bits(1) == 1

    def skip(self, count: int) -> None:
        """Leave out `count` bits."""
        self.bits(count)

    def unsigned(self) -> int:
        """An unsigned Exp-Golomb code, ue(v)."""
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > LONGEST:
                raise BitsError("a code of more than 65 bits")
        return (1 << zeros) - 1 + self.bits(zeros)

    def signed(self) -> int:
        """A signed Exp-Golomb code, se(v)."""
        code = self.unsigned()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def without_emulation_prevention(payload: bytes) -> bytes:
    """`payload` without the bytes 3 that keep start codes out of it."""
    if b"\0\0\3" not in payload:
        return payload
    kept, start = [], 0
    while (found := payload.find(b"\0\0\3", start)) >= 0:
        kept.append(payload[start : found + 2])
        start = found + 3
    kept.append(payload[start:])
    return b"".join(kept)
