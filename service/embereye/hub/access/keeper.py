"""Tokens, sessions and links, and whom each of them proves."""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

from embereye.hub.access.attempts import Attempts
from embereye.hub.access.records import AccessChanges, AuditEntry, SessionRecord, StoredAccess, TokenRecord
from embereye.hub.access.roles import Principal, Role
from embereye.hub.storage.committer import Committer, Draft, Step
from embereye.units import HOUR, SECOND

logger = logging.getLogger(__name__)

ADMIN = "admin"  # who shows the token that the hub was started with
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,62}")
PREFIX = "ee_"  # by which scanners for secrets find a token that got where it should not
SECRET_BYTES = 32
MAX_CREDENTIAL = 4_096  # characters
MAX_TOKENS = 1_000
MAX_SESSIONS = 1_000  # the one that was used longest ago goes first
MAX_LINKS = 64
SESSIONS_EACH, LINKS_EACH = 100, 8  # of one token or person: who has more loses their own, and nobody else's
WRITES, WRITE_NS = 100, 10 * SECOND  # sign-ins and links of one token or person at once, and the time until one more
LINK_NS = HOUR
IDLE_NS = 12 * HOUR  # without its page open, after which a session is over
OUTSIDE_NS = (
    12 * HOUR
)  # after which whom an identity provider proved has to be proved again: it may know better by then
PROVEN = 10_000  # pairs of credential and address that are remembered


class DeniedError(Exception):
    """Nobody is proved by what was shown, or nothing was."""


class SlowDownError(Exception):
    """Too many attempts failed, or too much was asked for; `seconds` to wait."""

    def __init__(self, seconds: float, why: str = "too many attempts from this address") -> None:
        super().__init__(f"{why}: try again in {int(seconds) + 1} s")
        self.seconds = seconds


class NameTakenError(Exception):
    """There is a token of that name."""


class RevokedError(Exception):
    """What a stream was opened with is no longer valid."""


@dataclass
class _Session:
    record: SessionRecord
    used: int  # steady nanoseconds
    began: int  # steady nanoseconds

    @property
    def holder(self) -> tuple[str, str]:
        """The token and the person that it is of."""
        return self.record.token, self.record.name

    def over(self, now: int) -> bool:
        """Whether its time is over at `now`, steady nanoseconds."""
        return now - self.used > IDLE_NS or (not self.record.token and now - self.began > OUTSIDE_NS)


@dataclass(frozen=True)
class _Link:
    principal: Principal
    by: tuple[str, str]  # token and name of who made it
    until: int  # steady nanoseconds


class Access:
    """Everything in memory, and durable as digests. On the event loop's thread."""

    def __init__(self, committer: Committer, *, clock: Callable[[], int], steady: Callable[[], int]) -> None:
        self._committer = committer
        self._clock = clock
        self._steady = steady
        self._given: bytes = b""  # digest of the admin's token
        self._tokens: dict[bytes, TokenRecord] = {}
        self._names: dict[str, TokenRecord] = {}
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()  # least lately used first
        self._held: Counter[tuple[str, str]] = Counter()  # sessions, by holder
        self._links: OrderedDict[bytes, _Link] = OrderedDict()
        self._attempts = Attempts(steady)
        self._writes = Attempts(steady, burst=WRITES, refill_ns=WRITE_NS)  # each is a line of the audit trail
        self._proven: OrderedDict[tuple[bytes, str], None] = OrderedDict()
        self._lasting: dict[asyncio.Task[object], Principal] = {}
        self._revoked: set[asyncio.Task[object]] = set()
        self.refused = 0  # requests, for the metrics

    def restore(self, stored: StoredAccess) -> None:
        """Go on from what was stored. Sessions are given their idle time anew: nobody knows how long we were away."""
        self._names = {record.name: record for record in stored.tokens}
        self._tokens = {record.digest: record for record in stored.tokens}
        for record in sorted(stored.sessions, key=lambda one: one.made_ns)[-MAX_SESSIONS:]:
            age = min(max(self._clock() - record.made_ns, 0), OUTSIDE_NS)
            self._add_session(_Session(record, self._steady(), self._steady() - age))

    def held(self) -> AccessChanges:
        """All tokens and sessions, to be stored anew."""
        sessions: dict[bytes, SessionRecord | None] = {one: kept.record for one, kept in self._sessions.items()}
        return AccessChanges(tokens=dict(self._names), sessions=sessions)

    def set_admin_token(self, text: str) -> None:
        """Let `text` prove the admin, and no longer what did so before."""
        digest = _digest(text)
        if self._given and self._given != digest:
            self._end_all(lambda principal: principal.token == ADMIN)
        self._given = digest

    # Who is it?

    def identify(self, credential: str, address: str) -> Principal:
        """Whom a token proves. Raises DeniedError and, where too many attempts from `address` failed, SlowDownError."""
        return self._attempt(credential, address, self._by_token, guessable=True)

    def resume(self, cookie: str, address: str) -> Principal:
        """Whom a browser's session proves; raises as `identify`."""
        return self._attempt(cookie, address, self._by_session)

    def _attempt(
        self, credential: str, address: str, find: Callable[[bytes], Principal | None], *, guessable: bool = False
    ) -> Principal:
        digest = _digest(credential[:MAX_CREDENTIAL])
        wait = self._attempts.wait_seconds(address)
        # Nobody is kept out by somebody else who guesses behind the same address: not who was let in from there before,
        # nor who shows what the hub made at random. Only an admin's token may be one that a person thought up.
        known = not guessable or (digest, address) in self._proven
        found = None if wait and not known else find(digest)
        if found is None:
            self.refused += 1
            self._proven.pop((digest, address), None)
            if wait:
                raise SlowDownError(wait)
            self._attempts.note_failure(address)
            raise DeniedError("this token or session is not known: it may have been revoked, or have ended")
        self._proven[digest, address] = None
        if len(self._proven) > PROVEN:
            self._proven.popitem(last=False)
        return replace(found, address=address)

    @contextlib.contextmanager
    def guessing(self, address: str, failure: type[Exception]) -> Iterator[None]:
        """SlowDownError where too many attempts from `address` failed; one more has, if `failure` ends the block."""
        if wait := self._attempts.wait_seconds(address):
            self.refused += 1
            raise SlowDownError(wait)
        try:
            yield
        except failure:
            self.refused += 1
            self._attempts.note_failure(address)
            raise

    def outside_name(self, name: str, provider: str) -> str:
        """What somebody is called whom `provider` calls `name`: nobody is taken for one who has a token here."""
        return f"{name} ({provider})" if name == ADMIN or name in self._names else name

    def _by_token(self, digest: bytes) -> Principal | None:
        if self._given and hmac.compare_digest(digest, self._given):
            return Principal(ADMIN, Role.ADMIN, ADMIN)
        # Looked up by a digest, which nobody can steer towards another: what its timing tells is of no use.
        record = self._tokens.get(digest)
        if record is None or not hmac.compare_digest(digest, record.digest):
            return None
        return Principal(record.name, record.role, record.name)

    def _by_session(self, cookie: bytes) -> Principal | None:
        found = (self._sessions.get(self._session_digest(cookie, token)) for token in ("", ADMIN))
        session = next(filter(None, found), None)
        if session is None:
            return None
        record = session.record
        if not hmac.compare_digest(self._session_digest(cookie, record.token), record.digest):
            return None
        if session.over(self._steady()):
            self._end_session(record.digest)
            return None
        session.used = self._steady()
        self._sessions.move_to_end(record.digest)
        return Principal(record.name, record.role, record.token, session=record.digest)

    def _session_digest(self, cookie: bytes, token: str) -> bytes:
        """What the session of a cookie with the digest `cookie` is kept by.

        Where it goes back to the admin's token that one is part of it: nobody tells a hub that was away of a change.
        """
        return hashlib.sha256(cookie + self._given).digest() if token == ADMIN else cookie

    # Tokens

    def tokens(self) -> list[TokenRecord]:
        """All that were made, by name."""
        return [self._names[name] for name in sorted(self._names)]

    async def create_token(self, by: Principal, name: str, role: Role) -> str:
        """Make a token and return it: nobody can find it out later.

        ValueError where `name` is none, NameTakenError where it is taken, StoreFailingError where nothing is written.
        """
        if not NAME.fullmatch(name):
            raise ValueError(f'"{name[:80]}" is no name of a token: letters, digits and . _ @ - and spaces, at most 63')
        if name == ADMIN:
            raise NameTakenError(f"{ADMIN} is the token that the hub was started with")
        if len(self._names) >= MAX_TOKENS:
            raise ValueError(f"there are {MAX_TOKENS} tokens already: revoke some first")
        text = PREFIX + secrets.token_urlsafe(SECRET_BYTES)

        def step(draft: Draft) -> None:
            if name in self._names:
                raise NameTakenError(f"there is a token {name} already: revoke it first, or choose another name")
            record = TokenRecord(name, _digest(text), role, draft.now_ns + draft.stepped_ns, by.name)
            self._names[name] = self._tokens[record.digest] = record
            draft.transaction.access.tokens[name] = record
            add_entry(draft, by, "create token", name, role.word)

        await self._committer.commit(step)
        return text

    async def revoke(self, by: Principal, name: str) -> bool:
        """Make the token `name` prove nobody, and end all sessions and streams that go back to it or to that name.

        Returns whether there was anything. It holds at once, and across restarts once this returns. StoreFailingError
        where that has to wait until something can be written.
        """
        record = self._names.pop(name, None)
        if record is not None:
            self._tokens.pop(record.digest, None)
        ended = self._end_all(lambda principal: name in {principal.token, principal.name})
        if record is None and not ended:
            return False

        def step(draft: Draft) -> None:
            draft.transaction.access.tokens[name] = None
            add_entry(draft, by, "revoke token", name)

        self._committer.enqueue(Step(step))  # also where whoever asked waits no longer
        await self._committer.commit(lambda _: None)
        return True

    # Sessions

    def sign_in(self, principal: Principal, how: str) -> str:
        """A session for a browser: the value of its cookie. It is valid at once, and durable soon.

        SlowDownError where the same token or person has had too many of late.
        """
        self._note_write(principal)
        text = secrets.token_urlsafe(SECRET_BYTES)
        digest = self._session_digest(_digest(text), principal.token)
        now = self._steady()
        began = now if principal.proved is None else principal.proved
        record = SessionRecord(digest, principal.name, principal.role, principal.token, self._clock() - (now - began))
        session = _Session(record, now, began)
        if self._held[session.holder] >= SESSIONS_EACH:
            own = [known for known, one in self._sessions.items() if one.holder == session.holder]
            for oldest in own[: len(own) + 1 - SESSIONS_EACH]:
                self._end_session(oldest)
        self._add_session(session)

        def step(draft: Draft) -> None:
            draft.transaction.access.sessions[record.digest] = record
            add_entry(draft, principal, "sign in", how)

        self._committer.enqueue(Step(step))
        while len(self._sessions) > MAX_SESSIONS:
            self._end_session(next(iter(self._sessions)))
        return text

    def _note_write(self, principal: Principal) -> None:
        key = _digest(f"{principal.token}\0{principal.name}").hex()
        if wait := self._writes.wait_seconds(key):
            raise SlowDownError(wait, f"{principal.name} has signed in, or made links, too often")
        self._writes.note_failure(key)

    def sign_out(self, principal: Principal) -> None:
        """End the session that `principal` came with."""
        if principal.session:
            self._end_session(principal.session)
            self._committer.enqueue(Step(lambda draft: add_entry(draft, principal, "sign out", "")))

    def tidy(self) -> None:
        """Forget sessions and links whose time is over."""
        now = self._steady()
        for digest in [digest for digest, session in self._sessions.items() if session.over(now)]:
            self._end_session(digest)
        for code in [code for code, link in self._links.items() if now > link.until]:
            del self._links[code]

    def _add_session(self, session: _Session) -> None:
        self._sessions[session.record.digest] = session
        self._held[session.holder] += 1

    def _end_session(self, digest: bytes) -> None:
        session = self._sessions.pop(digest, None)
        if session and self._held[session.holder] > 1:
            self._held[session.holder] -= 1
        elif session:
            del self._held[session.holder]
        self._committer.enqueue(Step(lambda draft: draft.transaction.access.sessions.__setitem__(digest, None)))
        self._end_streams(lambda principal: principal.session == digest)

    def _end_all(self, concerned: Callable[[Principal], bool]) -> int:
        def holder(record: SessionRecord) -> Principal:
            return Principal(record.name, record.role, record.token)

        found = [digest for digest, session in self._sessions.items() if concerned(holder(session.record))]
        for digest in found:
            self._end_session(digest)
        for code in [code for code, link in self._links.items() if concerned(link.principal)]:
            del self._links[code]
        return len(found) + self._end_streams(concerned)

    # Links

    def create_link(self, by: Principal, name: str, role: Role) -> str:
        """A code that signs one browser in as `name`, once, within the hour. ValueError where that is no name.

        Who makes it for themselves is called what they are: a provider has names of its own. SlowDownError
        where `by` has made too many of late.
        """
        if name != by.name and not NAME.fullmatch(name):
            raise ValueError(
                f'"{name[:80]}" is no name of a person: letters, digits and . _ @ - and spaces, at most 63'
            )
        self._note_write(by)
        own = [digest for digest, link in self._links.items() if link.by == (by.token, by.name)]
        for digest in own[: len(own) + 1 - LINKS_EACH]:
            del self._links[digest]
        code = secrets.token_urlsafe(SECRET_BYTES)
        # Whom a provider proved has to be proved again in time, however many links lie in between.
        outside, until = None if by.token else self._sessions.get(by.session), self._steady() + LINK_NS
        principal = Principal(name, min(role, by.role), by.token, proved=outside.began if outside else None)
        if outside:
            until = min(until, outside.began + OUTSIDE_NS)
        self._links[_digest(code)] = _Link(principal, (by.token, by.name), until)
        if len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        self._committer.enqueue(Step(lambda draft: add_entry(draft, by, "create link", name, role.word)))
        return code

    def use_link(self, code: str, address: str) -> Principal:
        """Whom a link's code proves; it is used up. Raises as `identify`."""
        found = self._attempt(code, address, self._by_link)
        self._links.pop(_digest(code), None)
        return found

    def _by_link(self, digest: bytes) -> Principal | None:
        link = self._links.get(digest)
        return link.principal if link and self._steady() <= link.until else None

    # Streams

    @contextlib.asynccontextmanager
    async def lasting(self, principal: Principal) -> AsyncIterator[None]:
        """While this is entered, a revocation ends the block with RevokedError."""
        task = asyncio.current_task()
        assert task is not None
        self._lasting[task] = principal
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._revoked:
                raise
            task.uncancel()
            raise RevokedError("the token or session that this was opened with is no longer valid") from None
        finally:
            self._lasting.pop(task, None)
            self._revoked.discard(task)

    def _end_streams(self, concerned: Callable[[Principal], bool]) -> int:
        found = [task for task, principal in self._lasting.items() if concerned(principal)]
        for task in found:
            self._revoked.add(task)
            task.cancel()
        return len(found)


def add_entry(draft: Draft, who: Principal, action: str, subject: str, detail: str = "") -> None:
    """Add to the audit trail, with what else `draft` makes durable."""
    told_ns = draft.now_ns + draft.stepped_ns
    entry = AuditEntry(told_ns, who.name, who.role, who.address, action, subject, detail, recorded_ns=draft.now_ns)
    draft.transaction.access.audit.append(entry)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
