"""Tokens, browser sessions and sign-in links, and the principals that they prove.

A token proves the principal that it was created for. A session belongs to a browser: a token, a link or an identity
provider has signed it in. Revoking a token ends every session and stream that depends on it. Memory has all of them;
the database has their digests only.

The HTTP middleware and the gRPC interceptor call it with each request's credential. Answers come from memory; created
tokens, sessions and audit entries are stored by the committer. Failed attempts are counted by address, and slow down
further guesses.
"""

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
from embereye.hub.committer import Committer, Draft, Step, StoreFailingError
from embereye.hub.refusals import ConflictError, ForbiddenError, InvalidError, UnknownNameError
from embereye.hub.roles import EVERYWHERE, NO_ROSTERS, Principal, Role, Rosters, Scope
from embereye.hub.tables.access import ADMIN_PLACES, AUDIT, SESSIONS, TOKENS, AuditEntry, SessionRecord, TokenRecord
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.process.addresses import place_of
from embereye.units import HOUR, SECOND

logger = logging.getLogger(__name__)

ADMIN = "admin"  # name of the principal with the token that the hub was started with
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,62}")
PREFIX = "ee_"  # secret scanners find leaked tokens by it
SECRET_BYTES = 32
RANDOM_LENGTH = 43  # characters of SECRET_BYTES in base64
MAX_CREDENTIAL = 4_096  # characters
MAX_TOKENS = 1_000
MAX_SESSIONS = 1_000  # the least recently used one goes first
MAX_LINKS = 64
SESSIONS_EACH, LINKS_EACH = 100, 8  # per token or person: beyond that, their oldest one ends
WRITES, WRITE_NS = 100, 10 * SECOND  # sign-ins and links per token or person: at once, and time until one more
LINK_NS = HOUR
IDLE_NS = 12 * HOUR  # a session ends after this time without an open page
PROVIDER_NS = 12 * HOUR  # a person from an identity provider signs in again after this time: roles may have changed
MAX_ADMIN_PLACES = 1_000  # the oldest one goes first


class DeniedError(Exception):
    """The credential is missing or proves nobody."""


class SlowDownError(Exception):
    """Too many attempts failed, or too many requests came; wait `seconds`."""

    def __init__(self, seconds: float, why: str = "too many attempts from this address") -> None:
        super().__init__(f"{why}. Try again in {int(seconds) + 1} s.")
        self.seconds = seconds


class NameTakenError(ConflictError):
    """A token of this name exists."""


class RevokedError(Exception):
    """The token or session that opened a stream is no longer valid."""


@dataclass
class _Session:
    record: SessionRecord
    used: int  # steady nanoseconds
    began: int  # steady nanoseconds

    @property
    def holder(self) -> tuple[str, str]:
        """The names of the token and the person that the session belongs to."""
        return self.record.token, self.record.name

    def is_over(self, now: int) -> bool:
        """True if the session has expired at `now`, in steady nanoseconds."""
        return now - self.used > IDLE_NS or (not self.record.token and now - self.began > PROVIDER_NS)


@dataclass(frozen=True)
class _Link:
    principal: Principal
    by: tuple[str, str]  # token and name of its creator
    until: int  # steady nanoseconds


class Access:
    """All tokens, sessions and links in memory; their digests in the database. Use it on the event loop's thread."""

    def __init__(
        self,
        committer: Committer,
        *,
        clock: Callable[[], int],
        steady: Callable[[], int],
        rosters: Rosters = NO_ROSTERS,
    ) -> None:
        """`rosters` has the zones of the fleets that principals are limited to."""
        self._committer = committer
        self._rosters = rosters
        self._clock = clock
        self._steady = steady
        self._admin_digest: bytes = b""  # of the admin's token
        self._admin_token_is_random = False
        self._admin_places: dict[str, None] = {}  # clients that the admin's token was let in from, oldest first
        self._tokens: dict[bytes, TokenRecord] = {}
        self._names: dict[str, TokenRecord] = {}
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()  # least recently used first
        self._session_counts: Counter[tuple[str, str]] = Counter()  # sessions by holder
        self._links: OrderedDict[bytes, _Link] = OrderedDict()
        self._attempts = Attempts(steady)
        self._writes = Attempts(steady, burst=WRITES, refill_ns=WRITE_NS)  # each writes a line of the audit trail
        self._provider_attempts = Attempts(steady)
        self._streams: dict[asyncio.Task[object], Principal] = {}
        self._revoked: set[asyncio.Task[object]] = set()
        self.refused = 0  # refused requests, for the metrics

    def restore(self, stored: StoredState) -> None:
        """Continue from the stored state. Sessions get a new idle time: the length of the outage is unknown."""
        self._names = dict(stored[TOKENS])
        self._tokens = {record.digest: record for record in self._names.values()}
        self._admin_places = dict.fromkeys(stored[ADMIN_PLACES])
        for record in sorted(stored[SESSIONS].values(), key=lambda session: session.made_ns)[-MAX_SESSIONS:]:
            age = min(max(self._clock() - record.made_ns, 0), PROVIDER_NS)
            self._add_session(_Session(record, self._steady(), self._steady() - age))

    def add_state(self, state: Transaction) -> None:
        """Add all tokens, sessions and places of the admin to `state`."""
        state[TOKENS].update(self._names)
        state[SESSIONS].update({digest: session.record for digest, session in self._sessions.items()})
        state[ADMIN_PLACES].update(dict.fromkeys(self._admin_places, True))

    def set_admin_token(self, text: str) -> None:
        """Let `text` prove the admin, and revoke the previous token."""
        digest = _digest(text)
        if self._admin_digest and self._admin_digest != digest:
            self._end_all(lambda principal: principal.token == ADMIN)
            self._forget_admin_places(len(self._admin_places))
        self._admin_digest = digest
        self._admin_token_is_random = text.startswith(PREFIX) and len(text) >= len(PREFIX) + RANDOM_LENGTH

    # Credentials

    def identify(self, credential: str, address: str) -> Principal:
        """Return the principal of a token. DeniedError; SlowDownError if `address` failed too often."""
        # Guesses must not lock out others behind the same address. Nobody can guess a created token: it is random.
        # An admin's token may be a person's invention. Guesses of it are slowed where it was never let in before.
        place = place_of(address)
        guessed = not (self._admin_token_is_random or place in self._admin_places) and self._attempts.wait_seconds(
            address
        )
        principal = self._attempt(credential, address, self._by_created_token if guessed else self._by_token)
        if principal.token == ADMIN and place not in self._admin_places:
            self._note_admin_place(place)
        return principal

    def resume(self, cookie: str, address: str) -> Principal:
        """Return the principal of a browser's session; raises the same errors as `identify`."""
        return self._attempt(cookie, address, self._by_session)

    def _attempt(self, credential: str, address: str, find: Callable[[bytes], Principal | None]) -> Principal:
        principal = find(_digest(credential[:MAX_CREDENTIAL]))
        if principal is None:
            self.refused += 1
            if wait := self._attempts.wait_seconds(address):
                raise SlowDownError(wait)
            self._attempts.note_failure(address)
            raise DeniedError("unknown token or session: it may have been revoked or have expired")
        return replace(principal, address=address, scope=principal.scope.by(self._rosters))

    def _note_admin_place(self, place: str) -> None:
        """Remember, across restarts, that the admin's token was let in from `place`."""
        self._forget_admin_places(len(self._admin_places) + 1 - MAX_ADMIN_PLACES)
        self._admin_places[place] = None
        self._committer.enqueue(Step(lambda draft: draft.transaction[ADMIN_PLACES].__setitem__(place, True)))

    def _forget_admin_places(self, count: int) -> None:
        places = list(self._admin_places)[: max(count, 0)]
        for place in places:
            del self._admin_places[place]
        if forgotten := dict.fromkeys(places):
            self._committer.enqueue(Step(lambda draft: draft.transaction[ADMIN_PLACES].update(forgotten)))

    @contextlib.contextmanager
    def count_failures(self, address: str, failure: type[Exception]) -> Iterator[None]:
        """Count one failed attempt of `address` if `failure` ends the block. SlowDownError if it failed too often.

        Guessed tokens do not count: they come from others behind the same address.
        """
        if wait := self._provider_attempts.wait_seconds(address):
            self.refused += 1
            raise SlowDownError(wait)
        try:
            yield
        except failure:
            self.refused += 1
            self._provider_attempts.note_failure(address)
            raise

    def external_name(self, name: str, provider: str) -> str:
        """The name here of a person called `name` by `provider`: never the name of a token."""
        return f"{name} ({provider})" if name == ADMIN or name in self._names else name

    def _by_token(self, digest: bytes) -> Principal | None:
        if self._admin_digest and hmac.compare_digest(digest, self._admin_digest):
            return Principal(ADMIN, Role.ADMIN, ADMIN)
        return self._by_created_token(digest)

    def _by_created_token(self, digest: bytes) -> Principal | None:
        # A look-up by digest leaks nothing useful by its timing: nobody can choose the digest of a guess.
        record = self._tokens.get(digest)
        if record is None or not hmac.compare_digest(digest, record.digest):
            return None
        return Principal(record.name, record.role, record.name, scope=record.scope)

    def _by_session(self, cookie: bytes) -> Principal | None:
        candidates = (self._sessions.get(self._session_digest(cookie, token)) for token in ("", ADMIN))
        session = next(filter(None, candidates), None)
        if session is None:
            return None
        record = session.record
        if not hmac.compare_digest(self._session_digest(cookie, record.token), record.digest):
            return None
        if session.is_over(self._steady()):
            self._end_session(record.digest)
            return None
        session.used = self._steady()
        self._sessions.move_to_end(record.digest)
        return Principal(record.name, record.role, record.token, session=record.digest, scope=record.scope)

    def _session_digest(self, cookie: bytes, token: str) -> bytes:
        """The key of a session, made from `cookie`, which is the digest of its cookie.

        A session by the admin's token includes that token's digest: the token may change while the hub is down.
        """
        return hashlib.sha256(cookie + self._admin_digest).digest() if token == ADMIN else cookie

    # Tokens

    def tokens(self) -> list[TokenRecord]:
        """All created tokens by name."""
        return [self._names[name] for name in sorted(self._names)]

    def token_made_ns(self, name: str) -> int | None:
        """The creation time of the token `name`; 0: the admin's token, or none; None: unknown or revoked."""
        if name in {"", ADMIN}:
            return 0
        return self._names[name].made_ns if name in self._names else None

    async def create_token(self, by: Principal, name: str, role: Role, scope: Scope = EVERYWHERE) -> str:
        """Create a token, for the zones in `scope`, and return its text, which is stored nowhere.

        InvalidError if `name` is not allowed, NameTakenError if it exists, StoreFailingError if nothing can be written.
        """
        if not NAME.fullmatch(name):
            raise InvalidError(f'"{name[:80]}" is not a name: use 1 to 63 letters, digits, spaces and . _ @ -')
        if name == ADMIN:
            raise NameTakenError(f"{ADMIN}: this is the name of the token that the hub was started with")
        check_scope(role, scope)
        if len(self._names) >= MAX_TOKENS:
            raise InvalidError(f"{MAX_TOKENS} tokens exist, which is the maximum. Revoke some first.")
        text = PREFIX + secrets.token_urlsafe(SECRET_BYTES)

        def step(draft: Draft) -> None:
            if name in self._names:
                raise NameTakenError(f"a token {name} exists already. Revoke it first, or choose another name.")
            record = TokenRecord(name, _digest(text), role, draft.now_ns + draft.stepped_ns, by.name, scope)
            self._names[name] = self._tokens[record.digest] = record
            draft.transaction[TOKENS][name] = record
            limit = f", {scope.words}" if scope.is_limited else ""
            add_entry(draft, by, "create token", name, f"{role.word}{limit}")

        await self._committer.commit(step)
        return text

    async def revoke(self, by: Principal, name: str) -> None:
        """Revoke the token `name`, and end all sessions and streams that depend on it or have that name.

        UnknownNameError if there was nothing to end. It takes effect immediately, and survives restarts once this
        returns. StoreFailingError if the database cannot be written; the revocation is then written later.
        """
        record = self._names.pop(name, None)
        if record is not None:
            self._tokens.pop(record.digest, None)
        ended = self._end_all(lambda principal: name in {principal.token, principal.name})
        if record is None and not ended:
            raise UnknownNameError(f'there is no token "{name[:80]}". `embereye access list` shows all.')

        def step(draft: Draft) -> None:
            draft.transaction[TOKENS][name] = None
            add_entry(draft, by, "revoke token", name)

        self._committer.enqueue(Step(step))  # written even if the caller stops waiting
        try:
            await self._committer.commit(lambda _: None)
        except StoreFailingError as error:
            sentence = f"revoked, but a restart of the hub undoes that until it is stored: {error}"
            raise StoreFailingError(sentence) from error

    # Sessions

    def sign_in(self, principal: Principal, how: str) -> str:
        """Create a session for a browser and return the value of its cookie. It is valid now, and durable soon.

        SlowDownError if the same token or person signed in too often recently.
        """
        self._note_write(principal)
        text = secrets.token_urlsafe(SECRET_BYTES)
        digest = self._session_digest(_digest(text), principal.token)
        now = self._steady()
        began = now if principal.proved is None else principal.proved
        made_ns = self._clock() - (now - began)
        record = SessionRecord(digest, principal.name, principal.role, principal.token, made_ns, principal.scope)
        session = _Session(record, now, began)
        if self._session_counts[session.holder] >= SESSIONS_EACH:
            digests = [digest for digest, known in self._sessions.items() if known.holder == session.holder]
            for oldest in digests[: len(digests) + 1 - SESSIONS_EACH]:
                self._end_session(oldest)
        self._add_session(session)

        def step(draft: Draft) -> None:
            draft.transaction[SESSIONS][record.digest] = record
            add_entry(draft, principal, "sign in", how)

        self._committer.enqueue(Step(step))
        while len(self._sessions) > MAX_SESSIONS:
            self._end_session(next(iter(self._sessions)))
        return text

    def _note_write(self, principal: Principal) -> None:
        key = _digest(f"{principal.token}\0{principal.name}").hex()
        if wait := self._writes.wait_seconds(key):
            raise SlowDownError(wait, f"{principal.name} has signed in or created links too often")
        self._writes.note_failure(key)

    def sign_out(self, principal: Principal) -> None:
        """End the session of `principal`."""
        if principal.session:
            self._end_session(principal.session)
            self._committer.enqueue(Step(lambda draft: add_entry(draft, principal, "sign out", "")))

    def tidy(self) -> None:
        """Remove expired sessions and links."""
        now = self._steady()
        for digest in [digest for digest, session in self._sessions.items() if session.is_over(now)]:
            self._end_session(digest)
        for code in [code for code, link in self._links.items() if now > link.until]:
            del self._links[code]

    def _add_session(self, session: _Session) -> None:
        self._sessions[session.record.digest] = session
        self._session_counts[session.holder] += 1

    def _end_session(self, digest: bytes) -> None:
        session = self._sessions.pop(digest, None)
        if session and self._session_counts[session.holder] > 1:
            self._session_counts[session.holder] -= 1
        elif session:
            del self._session_counts[session.holder]
        self._committer.enqueue(Step(lambda draft: draft.transaction[SESSIONS].__setitem__(digest, None)))
        self._end_streams(lambda principal: principal.session == digest)

    def _end_all(self, concerned: Callable[[Principal], bool]) -> int:
        def holder(record: SessionRecord) -> Principal:
            return Principal(record.name, record.role, record.token)

        digests = [digest for digest, session in self._sessions.items() if concerned(holder(session.record))]
        for digest in digests:
            self._end_session(digest)
        for code in [code for code, link in self._links.items() if concerned(link.principal)]:
            del self._links[code]
        return len(digests) + self._end_streams(concerned)

    # Links

    def create_link(self, by: Principal, name: str, role: Role) -> str:
        """Create a code that signs in one browser as `name`, once, within the hour.

        InvalidError if the name is invalid; ForbiddenError if it is another person's, and `by` is no admin.

        A person who creates a link for themselves retains their name, even with other characters: providers have
        other rules for names. The link gives at most the role of `by`. SlowDownError if `by` created too many recently.
        """
        if name != by.name and by.role < Role.ADMIN:
            raise ForbiddenError(f"{by.name} is {by.role.word}: only an admin creates links for others")
        if name != by.name and not NAME.fullmatch(name):
            raise InvalidError(f'"{name[:80]}" is not a name: use 1 to 63 letters, digits, spaces and . _ @ -')
        self._note_write(by)
        digests = [digest for digest, link in self._links.items() if link.by == (by.token, by.name)]
        for digest in digests[: len(digests) + 1 - LINKS_EACH]:
            del self._links[digest]
        code = secrets.token_urlsafe(SECRET_BYTES)
        # A person from a provider has to sign in there again in time, no matter how many links are used in between.
        session, until = None if by.token else self._sessions.get(by.session), self._steady() + LINK_NS
        proved = session.began if session else None
        principal = Principal(name, min(role, by.role), by.token, proved=proved, scope=by.scope)
        if session:
            until = min(until, session.began + PROVIDER_NS)
        self._links[_digest(code)] = _Link(principal, (by.token, by.name), until)
        if len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        # The role that the link gives, which may be lower than the requested one.
        self._committer.enqueue(Step(lambda draft: add_entry(draft, by, "create link", name, principal.role.word)))
        return code

    def use_link(self, code: str, address: str) -> Principal:
        """Return the principal of a link's code, and use it up. Raises the same errors as `identify`."""
        principal = self._attempt(code, address, self._by_link)
        self._links.pop(_digest(code), None)
        return principal

    def _by_link(self, digest: bytes) -> Principal | None:
        link = self._links.get(digest)
        return link.principal if link and self._steady() <= link.until else None

    # Streams

    @contextlib.asynccontextmanager
    async def until_revoked(self, principal: Principal) -> AsyncIterator[None]:
        """Run the block until `principal` is revoked; then RevokedError ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._streams[task] = principal
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._revoked:
                raise
            task.uncancel()
            raise RevokedError("the token or session of this stream is no longer valid") from None
        finally:
            self._streams.pop(task, None)
            self._revoked.discard(task)

    def _end_streams(self, concerned: Callable[[Principal], bool]) -> int:
        ended = [task for task, principal in self._streams.items() if concerned(principal)]
        for task in ended:
            self._revoked.add(task)
            task.cancel()
        return len(ended)


def check_scope(role: Role, scope: Scope) -> None:
    """Raise InvalidError if `role` cannot be limited to `scope`."""
    if role is Role.ADMIN and scope.is_limited:
        raise InvalidError("an admin is for all zones: the role manages everybody's access. Use viewer or operator.")


def add_entry(draft: Draft, who: Principal, action: str, subject: str, detail: str = "") -> None:
    """Add an entry to the audit trail in the transaction of `draft`."""
    time_ns = draft.now_ns + draft.stepped_ns
    entry = AuditEntry(time_ns, who.name, who.role, who.address, action, subject, detail, recorded_ns=draft.now_ns)
    draft.transaction[AUDIT].append(entry)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
