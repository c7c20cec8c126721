"""The error of a request that is not served."""


class Refused(Exception):  # noqa: N818 -- an answer, not a fault
    """A request that cannot be served; becomes {"error": sentence} with `headers`."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}
