"""The delay that an overloaded API server requests."""

import httpx2 as httpx  # what lightkube speaks with


def retry_after(error: Exception) -> float:
    """Return the Retry-After of the API server's answer in `error`, in seconds; at most a minute."""
    response = error.response if isinstance(error, httpx.HTTPStatusError) else None
    requested = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(requested), 60.0) if requested.isdecimal() else 0.0
