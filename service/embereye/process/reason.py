"""The reason of a failure in words, for logs, statuses and messages."""


def reason_of(error: BaseException) -> str:
    """The text of `error` on one line. Some errors have none, such as httpx's ReadTimeout: then what kind it is."""
    if text := " ".join(str(error).split()):
        return text
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__
