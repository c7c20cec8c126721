"""A regular expression that a line matches only if its four numbers are where they change nothing."""

import math
import re
from functools import lru_cache

from embereye.wire.device.rows import MAX_DIGITS

Bands = tuple[tuple[float, float], ...]  # of smoke, flame, gas, digital flame: from, inclusive; to, exclusive


def whole_numbers(low: int, high: int) -> bytes:
    """A pattern, one group, of the whole numbers from `low` to `high`, both inclusive; it may match none."""
    found: list[bytes] = []
    while low <= high:
        places = 0
        while low % 10 ** (places + 1) == 0 and low + 10 ** (places + 1) - 1 <= high:
            places += 1
        if low == 0:
            found.append(rb"\d{1,%d}" % places if places else b"0")
            low = 10**places
            continue
        head, digit = divmod(low // 10**places, 10)
        last = digit
        while last < 9 and low + 2 * 10**places - 1 <= high:
            last += 1
            low += 10**places
        found.append(b"%s[%d-%d]%s" % (b"%d" % head if head else b"", digit, last, rb"\d" * places))
        low += 10**places
    return b"(%s)" % b"|".join(found or [b"(?!)"])


@lru_cache(maxsize=256)
def quiet_reading(bands: Bands) -> re.Pattern[bytes]:
    """What follows the location in a usual line whose numbers, four groups, lie in `bands`, and the blanks after it.

    Each band is from, inclusive, to, exclusive. To match this costs half of what it costs to parse and compare.
    """
    most = 10**MAX_DIGITS - 1
    numbers = [
        whole_numbers(max(0, math.ceil(min(low, most + 1))), math.ceil(min(max(high, 0.0), most + 1)) - 1)
        for low, high in bands
    ]
    return re.compile(rb"ADC1:?=%s,ADC2:?=%s,ADC3:?=%s,(?:DIO|MPY30):?=%s!\s*" % tuple(numbers))
