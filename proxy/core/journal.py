"""What this proxy attests: the facts of one step go to the journal together, and what must wait for them does."""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.effects import Attest, ignore_result
from proxy.core.step_time import StepTime
from proxy.session.session import Session
from waypost.facts import Fact, FactKind
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId


class Journal:
    """The journal of one incarnation of a proxy after the other; each is a writer of its own.

    Args:
        proxy: our own name.
        site: our own site.
        time: facts carry its Unix time.
    """

    def __init__(self, proxy: ProxyId, site: SiteId, time: StepTime) -> None:
        self._proxy = proxy
        self._site = site
        self._time = time
        self.writer = ""
        """The name under which this incarnation writes facts and closing markers."""
        self._number = 0
        self._facts: list[Fact] = []
        self._waiting: list[Callable[[], None]] = []

    def begin(self, incarnation: Incarnation) -> None:
        """Begin the journal of an incarnation, as a writer of its own.

        The journal of the incarnation before it, if there was one, is attested as closed.
        """
        if self.writer:
            self.attest(FactKind.CLOSED)
        self.writer = writer_of(self._proxy, incarnation)
        self._number = 0
        self.attest(FactKind.OPENED)

    def attest(self, kind: FactKind, session: Session | SessionId | None = None, **fields: object) -> None:
        """Note a fact; :meth:`drain` returns the effect that writes it.

        Args:
            session: the session that the fact is about; of a Session the epoch is noted too. None: the fact is about
                none.
            fields: further fields of :class:`waypost.facts.Fact`.
        """
        fields = {"proxy": self._proxy, "site": self._site} | fields
        if isinstance(session, Session):
            fields = {"session": session.id, "epoch": session.epoch} | fields
        elif session is not None:
            fields = {"session": session} | fields
        self._number += 1
        fact = Fact(
            writer=self.writer,
            number=self._number,
            at_ms=self._time.unix_ms,
            kind=kind,
            **fields,  # type: ignore[arg-type]
        )
        self._facts.append(fact)

    def once_attested(self, on_done: Callable[[], None]) -> None:
        """Have `on_done` called, in a later step, once the journal has all facts noted so far.

        What is promised must be on record before anybody is told (handover rule 21).
        """
        self._waiting.append(on_done)

    def drain(self) -> Attest | None:
        """Remove the facts noted so far, and return the effect that writes them; None: no facts, and no caller waits.

        Callers of :meth:`once_attested` are called when the effect is done. If there are only such callers, the effect
        writes no facts: its answer comes behind that of earlier facts.
        """
        if not self._facts and not self._waiting:
            return None
        facts, self._facts = self._facts, []
        waiting, self._waiting = self._waiting, []

        def on_done(_: None) -> None:
            for attested in waiting:
                attested()

        return Attest(facts, on_done if waiting else ignore_result)


def writer_of(proxy: ProxyId, incarnation: Incarnation) -> str:
    """Return the name under which that incarnation of a proxy writes facts and closing markers."""
    return f"proxy/{proxy}/{incarnation}"
