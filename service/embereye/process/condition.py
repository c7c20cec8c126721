"""A failure that may last: logged once when it begins, and once when it is over."""

import logging


class Condition:
    """A failure that may last. It is true while the failure lasts.

    The beginning of a failure and a changed reason are logged at level `begin`, its end at level `end`. With
    `first_only`, changed reasons are not logged.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        begin: int = logging.WARNING,
        end: int = logging.WARNING,
        first_only: bool = False,
    ) -> None:
        self.why = ""  # the present reason; '' if nothing fails
        self._logger = logger
        self._begin = begin
        self._end = end
        self._first_only = first_only

    def __bool__(self) -> bool:
        return bool(self.why)

    def fail(self, why: str, sentence: str, *args: object) -> bool:
        """Note a failure for the reason `why`; if that is news, log `sentence` % `args` and return True."""
        why = why or "unknown"  # some errors have no text, such as httpx2's ReadTimeout
        before, self.why = self.why, why
        if before and (self._first_only or why == before):
            return False
        self._logger.log(self._begin, sentence, *args)
        return True

    def clear(self, sentence: str = "", *args: object) -> None:
        """Note that nothing fails; log `sentence` % `args`, if there is one, if a failure is over by that."""
        before, self.why = self.why, ""
        if before and sentence:
            self._logger.log(self._end, sentence, *args)
