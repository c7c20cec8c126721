"""What an overloaded API server asks for."""

import httpx2 as httpx  # what lightkube speaks with


def retry_after(error: Exception) -> float:
    """Seconds for which the API server that answered with `error` asks to be left alone; at most a minute."""
    response = error.response if isinstance(error, httpx.HTTPStatusError) else None
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(asked), 60.0) if asked.isdecimal() else 0.0
