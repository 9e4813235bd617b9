"""What proxies of a world ask each other of a log that was out of reach: late, lost and doubled, as on the real parts.

Whom a poll waits for stands in node/machines/witness_poll.py; node/site_log/witnesses.py is the counterpart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from chaos.simulator.environment.environment import Process
from federation.messages import SeenRequest, SeenResponse
from node.machines.log_guard import AskWitnesses, Witnessed
from node.machines.witness_poll import LOOK_MS, WitnessPoll
from waypost.errors import RegistryUnavailable
from waypost.identity import ProxyId

MOST_MS = 20
"""The longest time that a question or an answer is under way, in ms."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A poll that runs: whom it has not reached, by the time of the failure, and what follows."""

    poll: WitnessPoll
    failed_ms: dict[ProxyId, int]
    on_done: Callable[[Witnessed | RegistryUnavailable], None]


class Witnesses:
    """Asks all live proxies but one how far they have seen a log, for that one, until its process is gone."""

    def __init__(self, node: Process) -> None:
        self._node = node
        self._engine = node.engine

    def ask(self, question: AskWitnesses, on_done: Callable[[Witnessed | RegistryUnavailable], None]) -> None:
        """Begin a poll; `on_done` is called with what the others have seen, later or at once.

        Args:
            question: about the process's own site.
            on_done: RegistryUnavailable: the registry's watch has not said who lives.
        """
        world = self._node.world
        request = SeenRequest(world.salt(), question.origin, question.before)
        poll = WitnessPoll(self._node.proxy, self._node.site, request, world.clock.time_ms)
        self._keep_looking(_Running(poll, {}, on_done))

    def _keep_looking(self, asked: _Running) -> None:
        self._look(asked)
        if not asked.poll.is_over:
            self._node.schedule(LOOK_MS, partial(self._keep_looking, asked))

    def _look(self, asked: _Running) -> None:
        assert self._node.engine is not None
        cluster, poll = self._node.engine.env.cluster, asked.poll
        if poll.is_over:
            return
        living = list(cluster.proxies.values()) if cluster.is_watching else None
        for peer in poll.look(living, asked.failed_ms, self._node.world.clock.time_ms):
            self._send(self._node, partial(self._arrive, asked, peer))
        if not poll.is_over:
            return
        found: Witnessed | RegistryUnavailable
        try:
            found = poll.result()
        except RegistryUnavailable as error:
            found = error
        asked.on_done(found)

    def _arrive(self, asked: _Running, peer: ProxyId) -> None:
        world = self._node.world
        witness = world.nodes[peer]
        if witness.engine is None:
            asked.failed_ms[peer] = world.clock.time_ms
        elif not (witness.still and witness.stalls(partial(self._arrive, asked, peer))):
            answer = witness.answer_seen(asked.poll.request)
            if answer is not None:
                self._send(witness, partial(self._answered, asked, peer, answer))

    def _answered(self, asked: _Running, peer: ProxyId, answer: SeenResponse) -> None:
        if self._node.engine is self._engine:
            asked.poll.receive(peer, answer)
            self._node.schedule(0, partial(self._look, asked))

    def _send(self, sender: Process, arrive: Callable[[], None]) -> None:
        world = self._node.world
        if world.seed is None:
            world.later(1, arrive)
            return
        rng, faults = world.witness_rng, world.faults
        for _ in range(1 + (rng.random() < faults.double)):
            if rng.random() >= faults.loss:
                world.later(1 + int(rng.random() * MOST_MS), arrive)
