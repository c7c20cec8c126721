"""Build a regular expression that matches a line only if its four numbers lie in bands where they change nothing."""

import math
import re
from functools import lru_cache

from embereye.wire.device.rows import MAX_DIGITS

Bands = tuple[tuple[float, float], ...]  # smoke, flame, gas, digital flame; each from (inclusive) to (exclusive)


def whole_numbers(low: int, high: int) -> bytes:
    """A pattern, one group, of the whole numbers from `low` to `high`, both inclusive; it may match nothing."""
    branches: list[bytes] = []
    while low <= high:
        places = 0
        while low % 10 ** (places + 1) == 0 and low + 10 ** (places + 1) - 1 <= high:
            places += 1
        if low == 0:
            branches.append(rb"\d{1,%d}" % places if places else b"0")
            low = 10**places
            continue
        head, digit = divmod(low // 10**places, 10)
        last = digit
        while last < 9 and low + 2 * 10**places - 1 <= high:
            last += 1
            low += 10**places
        branches.append(b"%s[%d-%d]%s" % (b"%d" % head if head else b"", digit, last, rb"\d" * places))
        low += 10**places
    return b"(%s)" % b"|".join(branches or [b"(?!)"])


@lru_cache(maxsize=256)
def quiet_reading(bands: Bands) -> re.Pattern[bytes]:
    """A pattern for the rest of a regular line, behind its location, and the blanks after it.

    It matches if the four numbers, its groups, lie in `bands`. Matching takes half as long as parsing and comparing.
    """
    most = 10**MAX_DIGITS - 1
    numbers = [
        whole_numbers(max(0, math.ceil(min(low, most + 1))), math.ceil(min(max(high, 0.0), most + 1)) - 1)
        for low, high in bands
    ]
    return re.compile(rb"ADC1:?=%s,ADC2:?=%s,ADC3:?=%s,(?:DIO|MPY30):?=%s!\s*" % tuple(numbers))
