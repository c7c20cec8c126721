"""Limits on log-ins at cameras, so that a wrong password does not lock the camera's user out.

Cameras lock a user, or our address, after three to ten refused log-ins. `Logins` counts refusals by host, user and
password, because the channels of a recorder and a camera's record stream share one account. Until the camera has
accepted a password, one stream at a time tries it. After a refusal all of them wait for minutes. A changed Secret, or
the next password in it, is another log-in, so it is tried at once.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from embereye.camera.sources.credentials import Credentials, Mounted
from embereye.camera.sources.declared import SourceError
from embereye.process.tasks import first_of

PAUSES = (60.0, 120.0, 300.0, 600.0)  # seconds after the first, second, … refusal; the last one repeats
JITTER = 0.2  # share of a pause that is added at random, so that many cameras do not log in together
TRIAL_SECONDS = 5.0  # for the outcome of one stream's log-in; a camera without a signal does not delay others longer
CHECK_SECONDS = 2.0  # between two looks at the Secret of a refused log-in

Key = tuple[str, str, str]  # host, user, password


@dataclass
class _Account:
    """A user and password at one host, and their outcome so far."""

    streams: set["Login"] = field(default_factory=set)  # that use it
    proven: bool = False  # the camera accepted it, and no stream has ended since
    trying: "Login | None" = None
    trial_ends: float = 0.0  # monotonic seconds
    refusals: int = 0  # in a row
    due: float = 0.0  # when it may be tried again, monotonic seconds
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wait_seconds(self, login: "Login", now: float) -> float:
        """Seconds until `login` may be tried; 0: now."""
        if now < self.due:
            return self.due - now
        if self.trying not in {None, login} and now < self.trial_ends and not self.proven:
            return self.trial_ends - now
        return 0.0

    def notify(self) -> None:
        """Wake the streams that wait for an outcome."""
        self.changed.set()
        self.changed = asyncio.Event()


class Logins:
    """The accounts of the cameras of one shard. Use it on the event loop."""

    def __init__(self, pauses: tuple[float, ...] = PAUSES, *, trial: float = TRIAL_SECONDS) -> None:
        self.accounts: dict[Key, _Account] = {}
        self.pauses, self.trial = pauses, trial

    def pause(self, refusals: int) -> float:
        """Seconds to wait after so many refusals in a row."""
        pause = self.pauses[min(refusals, len(self.pauses)) - 1]
        return pause * (1 + random.uniform(0.0, JITTER))


class Login:
    """The log-in of one stream at `host`. Call `wait` before each dial, and then report its outcome."""

    def __init__(self, logins: Logins, host: str, credentials: Credentials) -> None:
        self._logins = logins
        self._host = host
        self._credentials = credentials
        self._key: Key | None = None

    @property
    def _account(self) -> _Account | None:
        return self._logins.accounts.get(self._key) if self._key else None

    async def wait(self, report: Callable[[float], None]) -> None:
        """Wait until the credentials of now may be tried.

        Calls `report` with the seconds that remain after a refusal. Returns at once without a user.
        """
        while True:
            self._join(self._read())
            if (account := self._account) is None:
                return
            now = time.monotonic()
            if not (seconds := account.wait_seconds(self, now)):
                if not account.proven:
                    account.trying, account.trial_ends = self, now + self._logins.trial
                return
            if now < account.due:
                report(seconds)
            await first_of(account.changed.wait(), timeout=min(seconds, CHECK_SECONDS))

    def accept(self) -> None:
        """Note that the camera sends: its account is good, and all streams may use it."""
        if account := self._account:
            account.refusals, account.due, account.proven = 0, 0.0, True
            self._end_trial(account)

    def refuse(self) -> float:
        """Note that the camera refused the credentials; return the seconds until they are tried again.

        Returns 0 without a user. Of several streams that are refused at the same time, one counts.
        """
        if (account := self._account) is None:
            return 0.0
        now = time.monotonic()
        if now >= account.due:
            account.refusals += 1
            account.due = now + self._logins.pause(account.refusals)
        account.proven = False
        if isinstance(self._credentials, Mounted) and self._key:
            self._credentials.refuse(self._key[1:])
        self._end_trial(account)
        return account.due - now

    def end(self) -> None:
        """Note that the stream has ended for another reason."""
        if account := self._account:
            account.proven = False
            self._end_trial(account)

    def close(self) -> None:
        """Forget the stream."""
        self.end()
        self._join(None)

    def _end_trial(self, account: _Account) -> None:
        if account.trying is self:
            account.trying = None
        account.notify()

    def _read(self) -> Key | None:
        """Return host, user and password of now; None without a user, or if the Secret cannot be read."""
        try:
            user, password = self._credentials()
        except SourceError:  # the dial says why
            return None
        return (self._host, user, password) if user else None

    def _join(self, key: Key | None) -> None:
        """Use the account `key` from now on; one without streams is forgotten, unless it was refused just now.

        A Secret with two passwords comes back to the first one, which must not be tried again at once.
        """
        if key == self._key:
            return
        accounts = self._logins.accounts
        if self._key and (left := accounts.get(self._key)):
            left.streams.discard(self)
            self._end_trial(left)
        now = time.monotonic()
        for idle in [other for other, account in accounts.items() if not account.streams and account.due <= now]:
            del accounts[idle]
        self._key = key
        if key:
            accounts.setdefault(key, _Account()).streams.add(self)


def in_words(seconds: float) -> str:
    """Write a wait for people: "40 s", "5 min"."""
    return f"{max(1, math.ceil(seconds))} s" if seconds < 60 else f"{round(seconds / 60)} min"
