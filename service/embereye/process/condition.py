"""A failure that may last: logged once when it begins, and once when it is over."""

import logging
from dataclasses import KW_ONLY, dataclass, field


@dataclass(eq=False)
class Condition:
    """A failure that may last. It is true while the failure lasts.

    The beginning of a failure and a changed reason are logged at level `begin`, its end at level `end`. With
    `first_only`, changed reasons are not logged. Without a logger, the caller reports what is news.
    """

    logger: logging.Logger | None = None
    _: KW_ONLY
    begin: int = logging.WARNING
    end: int = logging.WARNING
    first_only: bool = False
    why: str = field(default="", init=False)  # the present reason; '' if nothing fails

    def __bool__(self) -> bool:
        return bool(self.why)

    def fail(self, why: str, sentence: str = "", *args: object, error: BaseException | None = None) -> bool:
        """Note a failure for the reason `why`; if that is news, log `sentence` % `args`, if there is one.

        Returns True if it is news. `error` is logged with its traceback.
        """
        why = why or "unknown"  # some errors have no text, such as httpx2's ReadTimeout
        before, self.why = self.why, why
        if before and (self.first_only or why == before):
            return False
        if self.logger and sentence:
            self.logger.log(self.begin, sentence, *args, exc_info=error)
        return True

    def clear(self, sentence: str = "", *args: object) -> bool:
        """Note that nothing fails; if a failure is over by that, log `sentence` % `args` and return True."""
        before, self.why = self.why, ""
        if before and self.logger and sentence:
            self.logger.log(self.end, sentence, *args)
        return bool(before)
