"""Authorization: which principal may attach to a session, and what it may do there. It is checked where the session is
served, before anything is delivered.

A password is looked at by the shell, because that takes tens of milliseconds (:class:`proxy.core.effects.Verify`). What
is asked at one time is bounded, for the proxy and for each principal of a session, and wrong ones make the next one
wait; so guessing costs nobody else anything. The password that was right last is known again without the shell, so
guessing does not keep out who was in before. Of all this nothing is kept but the hash: a digest lives in memory only,
under a key of this process.

A principal that the access does not name, or that proves itself by a token only, goes the same way with a password: it
is looked at, counted and made to wait alike. So neither the answer nor its time tells whether a principal exists.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from proxy.clients.tokens import Named, read
from proxy.core.effects import Hash, Verify
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.auth_failures import AuthFailures
from proxy.session.session import Session
from waypost.access import ADMINISTER, BY_TOKEN, READ, Access, Grant, Right, grant_of
from waypost.clock import NEVER
from waypost.errors import Forbidden, LimitExceeded, Refused, WaypostError
from waypost.identity import SessionId
from waypost.limits import (
    ACCESS_CHANGES_AT_ONCE,
    FREE_TRIES,
    LONGEST_WAIT_MS,
    PASSWORDS_AT_ONCE,
    PASSWORDS_OF_ONE,
    UNKNOWN_PRINCIPALS_REMEMBERED,
)
from waypost.messages import Attach, Credential, Granted, Wait, WaitCause

UNPROVEN, MISSING, TOO_OFTEN = "unproven", "right missing", "too often"
REASONS = (UNPROVEN, MISSING, TOO_OFTEN)
"""The reasons of a refusal by which it is counted."""
NO_HASH = ""
"""The hash of a principal that no password proves."""


class Proof(NamedTuple):
    """The proof that the password of an attach is the one of a hash. It holds for this attach and this hash alone.

    Args:
        attach: the attach that brought the password.
        hash: the hash that the session's access had for the attach's principal.
    """

    attach: Attach
    hash: str


class Admitted(NamedTuple):
    """The principal of an admitted receiver, its grant, and when its token ends in ms of the engine's clock."""

    principal: str
    grant: Grant
    until_ms: int = NEVER


class Authorizer:
    """Decides about the access to the sessions that are served here, and who may publish.

    :attr:`verifying` and :attr:`hashing` count the passwords that the shell is verifying, and the changes of access
    whose passwords it is hashing.
    """

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._key = b""
        self.verifying = 0
        self.hashing = 0
        self._unknown: OrderedDict[tuple[SessionId, str], AuthFailures] = OrderedDict()
        """The principals in :attr:`Session.auth_failures` that no password proves, by the time of the last try."""

    # ------------------------------------------------------------ who publishes

    def named(self, credential: Credential) -> Named | None:
        """Return the content of a connection's token; None: there is no token, or everybody may publish here. Call it
        only once the registry's secret is known (:attr:`ClusterView.token_key` is not empty).

        Raises:
            Forbidden: the token is not valid, or has ended.
        """
        if not credential.token or not self._env.settings.publishers:
            return None
        return read(self._env.cluster.token_key, credential.token, self._env.time.unix_ms)

    def let_publish(self, named: Named | None) -> bool:
        """Tell whether a connection may publish now; False: its token has ended, and the client must bring a new one.

        Args:
            named: the content of the connection's token; None: it has none.

        Raises:
            Forbidden: only named principals may publish here, and this one is not among them.
        """
        publishers = self._env.settings.publishers
        if not publishers:
            return True
        if named is None or named.principal not in publishers:
            who = f"principal {named.principal}" if named else "a client without a token"
            raise Forbidden(f"{who} may not publish here; ask the proxy's operator", field="credential")
        return named.until_ms > self._env.time.unix_ms

    # ------------------------------------------------------------ who comes in

    def admit(
        self, session: Session, attach: Attach, proof: Proof | None, on_done: Callable[[Proof | Wait | Forbidden], None]
    ) -> Admitted | Wait | None:
        """Decide whether a receiver may attach to a session; the caller lets it in.

        Args:
            attach: the client's request, with its credential.
            proof: the result of an earlier call for this same `attach`; None: there is none yet.
            on_done: called only if None is returned, once the password is verified. With a `Proof`: call `admit` again
                with it, since the session and its access may have changed. With a `Wait` or a `Forbidden`: that is the
                answer to the client.

        Returns:
            `Admitted`: it may attach. `Wait`: too many passwords are being tried, or this proxy cannot verify tokens
            yet; the client tries again. None: the shell verifies the password.

        Raises:
            Forbidden: the credential is not valid, or has no right to read.
        """
        credential = attach.credential
        if credential.token and not self._env.cluster.token_key:
            return Wait(
                WaitCause.UNAVAILABLE, "this proxy does not know yet whom to believe", self._env.settings.retry_ms
            )
        named = self._named(attach) if credential.token else None
        principal = named.principal if named else credential.principal
        grant = grant_of(session.access, principal)
        if grant is None or (grant.hash == BY_TOKEN and named is None):
            if named is not None:
                raise self._unproven(session, principal)
            return self._verify(session, attach, NO_HASH, self._tries_of_unknown(session, principal), on_done)
        if named is None and grant.hash and (proof is None or proof.attach is not attach or proof.hash != grant.hash):
            tries = session.auth_failures.setdefault(principal, AuthFailures())
            if not self._knows(tries, attach, grant):
                return self._verify(session, attach, grant.hash, tries, on_done)
        self.require(session, principal, READ)
        if named is None:
            return Admitted(principal, grant)
        time = self._env.time
        return Admitted(principal, grant, time.now_ms + named.until_ms - time.unix_ms)

    def _named(self, attach: Attach) -> Named:
        """Return the token's content. Raises Forbidden: it is not valid, or proves another principal than is named."""
        credential = attach.credential
        try:
            named = read(self._env.cluster.token_key, credential.token, self._env.time.unix_ms)
            if credential.principal not in ("", named.principal):
                raise Forbidden(f"the token is that of principal {named.principal}", field="credential")
        except Forbidden:
            self._output.counters.forbidden[UNPROVEN] += 1
            raise
        return named

    def require(self, session: Session, principal: str, right: Right) -> None:
        """Check that a principal has a right in the session; a refusal is counted.

        Args:
            principal: empty: the client has named none.

        Raises:
            Forbidden: the principal does not have the right.
        """
        grant = grant_of(session.access, principal)
        if grant is None or right not in grant.rights:
            self._output.counters.forbidden[MISSING] += 1
            who = f"principal {principal}" if principal else "a client without a principal"
            raise Forbidden(
                f"{who} has no right to {right} in session {session.id}; ask its owner for it", field="credential"
            )

    def _unproven(self, session: Session, principal: str) -> Forbidden:
        """Return the refusal of a wrong credential; it does not tell whether such a principal exists."""
        self._output.counters.forbidden[UNPROVEN] += 1
        who = f"principal {principal}" if principal else "a client without a principal"
        text = f"session {session.id} does not let in {who} with this credential; attach with what its owner gave you"
        return Forbidden(text, field="credential")

    def _tries_of_unknown(self, session: Session, principal: str) -> AuthFailures:
        """Return the failures of a principal that has no password; the oldest of too many are forgotten."""
        tries = session.auth_failures.setdefault(principal, AuthFailures())
        self._unknown[session.id, principal] = tries
        self._unknown.move_to_end((session.id, principal))
        if len(self._unknown) > UNKNOWN_PRINCIPALS_REMEMBERED:
            (identity, name), forgotten = self._unknown.popitem(last=False)
            oldest = self._sessions.get(identity)
            # The access may have changed since, and the name be one that a password proves.
            if oldest is not None and oldest.auth_failures.get(name) is forgotten and name not in oldest.access:
                del oldest.auth_failures[name]
        return tries

    def _verify(
        self,
        session: Session,
        attach: Attach,
        hashed: str,
        tries: AuthFailures,
        on_done: Callable[[Proof | Wait | Forbidden], None],
    ) -> Wait | None:
        credential, now = attach.credential, self._env.time.now_ms
        if not credential.password:
            raise self._unproven(session, credential.principal)
        at_once = PASSWORDS_OF_ONE if tries.failures < FREE_TRIES else 1
        if now < tries.next_ms or tries.under_way >= at_once or self.verifying >= PASSWORDS_AT_ONCE:
            self._output.counters.forbidden[TOO_OFTEN] += 1
            wait_ms = max(tries.next_ms - now, self._env.settings.retry_ms)
            return Wait(WaitCause.BUSY, "too many passwords are tried at the moment", wait_ms)
        tries.under_way += 1
        self.verifying += 1

        def answered(right: bool | WaypostError) -> None:
            tries.under_way -= 1
            self.verifying -= 1
            if isinstance(right, WaypostError):
                on_done(Wait(WaitCause.UNAVAILABLE, right.message, self._env.settings.retry_ms))
            elif right and hashed != NO_HASH:
                tries.failures = tries.next_ms = 0
                tries.known = self._digest(credential.password, hashed)
                on_done(Proof(attach, hashed))
            else:
                self._failed(tries)
                on_done(self._unproven(session, credential.principal))

        self._output.emit(Verify(credential.password, hashed, answered))
        return None

    def _failed(self, tries: AuthFailures) -> None:
        tries.failures += 1
        if tries.failures >= FREE_TRIES:
            # Past the longest wait nothing grows, the exponent neither.
            wait_ms = 1_000 << min(tries.failures - FREE_TRIES, 16)
            tries.next_ms = self._env.time.now_ms + min(wait_ms, LONGEST_WAIT_MS)

    def _knows(self, tries: AuthFailures, attach: Attach, grant: Grant) -> bool:
        """Tell whether this is the password that was right before."""
        password = attach.credential.password
        return bool(tries.known) and hmac.compare_digest(tries.known, self._digest(password, grant.hash))

    def _digest(self, password: str, hashed: str) -> bytes:
        self._key = self._key or self._env.rng.randbytes(32)
        return blake2b(f"{hashed}\0{password}".encode(), key=self._key).digest()

    # ------------------------------------------------------------ another access

    def hash(
        self,
        session: Session,
        principal: str | None,
        grants: Mapping[str, Granted],
        on_done: Callable[[dict[str, str] | WaypostError], None],
    ) -> None:
        """Check a change of access, and have its new passwords hashed.

        Args:
            principal: the one that asks for it; it must keep the right to change the access again. None: an operator,
                which always may.
            grants: the whole new access, by principal; empty: everybody may do everything.
            on_done: called with principal -> hash of its new password, at once if there are none; or with the error of
                the shell.

        Raises:
            Refused: the change is not valid for the session's access as it is now, or too many are under way.
        """
        if grants and principal is not None and (principal not in grants or ADMINISTER not in grants[principal].rights):
            who = f"principal {principal}" if principal else "a client without a principal"
            raise Refused(f"{who} asks for this, and could never change it again; let it administer", field="grants")
        for name, granted in grants.items():
            if granted.password is None and not granted.by_token and name not in session.access:
                raise Refused(f"principal {name or '(none)'} has no password yet; name one", field="grants")
            if granted.by_token and (granted.password or not name):
                raise Refused("a token names a principal, and nothing else proves it then", field="grants")
        fresh = {name: granted.password for name, granted in grants.items() if granted.password}
        if not fresh:
            on_done({})
            return
        if self.hashing >= ACCESS_CHANGES_AT_ONCE:
            raise LimitExceeded(
                "the access of too many sessions is being changed; ask again in a moment", field="grants"
            )
        self.hashing += 1

        def answered(hashes: list[str] | WaypostError) -> None:
            self.hashing -= 1
            on_done(hashes if isinstance(hashes, WaypostError) else dict(zip(fresh, hashes, strict=True)))

        self._output.emit(Hash([*fresh.values()], answered))


def changed(access: Access, grants: Mapping[str, Granted], hashes: Mapping[str, str]) -> dict[str, Grant]:
    """Return the access after a change.

    Args:
        access: the session's access now.
        grants: the whole new access; a principal without a new password keeps its hash.
        hashes: the hashes of all new passwords, by principal (:meth:`Authorizer.hash`). Note that a principal with a
            new password that is not in it needs no password any more; so an empty password is granted.

    Raises:
        Refused: the access has changed meanwhile, so that a principal has no password to keep.
    """
    made = {}
    for name, granted in grants.items():
        if granted.password is None and not granted.by_token and name not in access:
            raise Refused(f"principal {name or '(none)'} has no password any more; name one", field="grants")
        if granted.by_token:
            proof = BY_TOKEN
        else:
            proof = access[name].hash if granted.password is None else hashes.get(name, "")
        made[name] = Grant(tuple(dict.fromkeys(granted.rights)), proof)
    return made
