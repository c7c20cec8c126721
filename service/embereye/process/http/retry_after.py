"""The delay that an overloaded server requests."""

from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_seconds(value: str, now: float) -> float:
    """Return the seconds that the Retry-After header `value` requests at `now`, a Unix time; 0: none.

    It is a number of seconds or a date, in any of HTTP's three formats (RFC 9110, sections 10.2.3 and 5.6.7).
    """
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        # The date of C's asctime has no time zone; HTTP's dates are in UTC.
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
