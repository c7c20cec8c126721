"""The delay that an overloaded API server requests."""

import time

import httpx2 as httpx  # what lightkube speaks with

from embereye.process.http.retry_after import retry_seconds

MAX_SECONDS = 60.0


def retry_after(error: Exception) -> float:
    """Return the Retry-After of the API server's answer in `error`, in seconds; at most a minute."""
    response = error.response if isinstance(error, httpx.HTTPStatusError) else None
    requested = response.headers.get("Retry-After", "") if response is not None else ""
    return min(retry_seconds(requested, time.time()), MAX_SECONDS)  # a date is by the wall clock
