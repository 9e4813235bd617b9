"""Links in the world, as node/links.py runs them: pulled by an elected leader, numbered, opened again when lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from federation.link import LinkSender, Position
from federation.site_state import Acceptance
from proxy.effects import FetchHistory, History
from proxy.engine import Engine
from waypost.identity import SiteId, origin_of
from waypost.notification import Notification
from waypost.records import Asked, Forwarded, Published
from waypost.subscription import parse

if TYPE_CHECKING:
    from tests.helpers.world import Node, World

STEP_MS = 20


class Link:
    """What goes from site `near` to site `far`. A leader that is deposed may still append what it had received."""

    def __init__(self, world: World, near: SiteId, far: SiteId) -> None:
        self.world = world
        self.near = near
        self.far = far
        self.cut = False
        self.epoch = 0
        self._serial = 0
        self._leader: tuple[Node, Engine, str] | None = None
        self._opening: Opening | None = None
        self._append_at = 0
        self._under_way = 0
        """Records that the leader received and the far log does not have yet."""

    def step(self) -> None:
        self.world.later(STEP_MS, self.step)
        if self._leads():
            if self._opening is None or not self._opening.stands():
                self._open()
            if self._opening is not None:
                self._opening.pump()

    def lose(self) -> None:
        """The connection breaks, with everything that is on it."""
        self._opening = None

    def _leads(self) -> bool:
        """Elect a leader if there is none; tell whether there is one."""
        lives = self.world.registry.lives
        if self._leader is not None:
            node, engine, life = self._leader
            if node.engine is engine and (node.proxy, life) in lives and not self.cut:
                return True
            if self.cut:
                self._opening = None
                return False
        self._leader = self._opening = None
        able = self.world.live_nodes(self.far)
        if not able:
            return False
        node = able[self.world.delay(len(able)) - 1]
        assert node.engine is not None
        self._leader = (node, node.engine, node.engine.context.incarnation)
        self.epoch += 1
        self._under_way = self._append_at = 0
        self.world.note(f"link {self.near}->{self.far} led by {node.proxy} at {self.epoch}")
        return True

    def _open(self) -> None:
        assert self._leader is not None
        engine = self._leader[1]
        self._opening = None
        peers = self.world.live_nodes(self.near)
        if self._under_way or not peers or engine.state.position < len(self.world.logs[self.far]):
            return
        self._serial += 1
        self._opening = Opening(self, engine, peers[self.world.delay(len(peers)) - 1], self._serial)

    def arrived(self, opening: Opening, records: list[Any]) -> None:
        """The leader appends what came, in order, whatever becomes of the connection meanwhile."""
        if self._opening is not opening or self._leader is None:
            return
        leader = self._leader
        self._under_way += 1

        def append() -> None:
            if self._leader is leader:
                self._under_way -= 1
            self.world.appended(self.far, records)

        now = self.world.clock.now_ms()
        self._append_at = max(self._append_at, now + self.world.delay())
        self.world.later(self._append_at - now, append)

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial


class Opening:
    """One connection of a link: what is sent on it arrives in order or, with all that follows, not at all."""

    def __init__(self, link: Link, leader: Engine, peer: Node, serial: int) -> None:
        self._link = link
        self._leader = leader
        self._peer = peer
        assert peer.engine is not None
        self._engine = peer.engine
        self._wants = dict(leader.state.wants[link.near])
        self._due = 0
        self._ask(serial)
        start = Position(0, Acceptance(origin_of(link.near)))
        self._sender = LinkSender(
            peer.engine.state, link.far, link.epoch, dict(leader.state.frontier), dict(self._wants), start
        )
        self._offset = self._sender.start
        self._send(self._sender.hello())

    def stands(self) -> bool:
        return self._peer.engine is self._engine and self._peer.ready

    def pump(self) -> None:
        world, link = self._link.world, self._link
        wants = self._leader.state.wants[link.near]
        if wants != self._wants:
            self._wants = dict(wants)
            serial = link.next_serial()
            world.later(world.delay(), lambda: self._ask(serial))
        out: list[Any] = []
        for offset, record in world.logs[link.near].read(self._offset):
            out += self._sender.step(offset, record)
            self._offset = offset + 1
        self._send(out + self._sender.pause())

    def _ask(self, serial: int) -> None:
        """Install what the far site wants, by writing it to the near log."""
        link, asks = self._link, self._engine.state.asks.get(self._link.far)
        installed = {name: each.installation for name, each in asks.filters.items()} if asks else None
        if self._peer.engine is self._engine and installed != self._wants:
            link.world.appended(link.near, [Asked(link.far, link.epoch, serial, dict(self._wants))])

    def _send(self, records: list[Any]) -> None:
        if not records:
            return
        world, now = self._link.world, self._link.world.clock.now_ms()
        self._due = max(self._due, now + world.delay())
        world.later(self._due - now, lambda: self._link.arrived(self, records))


def history(world: World, effect: FetchHistory) -> History:
    """Serve a catch-up from the origin's own log, a few records at a time."""
    wanted = effect.wanted
    expressions = [parse(each) for each in wanted.expressions]
    found: list[Forwarded] = []
    through = wanted.after
    for offset, record in world.logs[effect.site].read(wanted.after + 1, wanted.upto + 1):
        if len(found) >= 3:
            break
        through = offset
        if isinstance(record, Published):
            attributes = Notification.from_body(record.body)
            if any(expression.matches(attributes) for expression in expressions):
                found.append(_forwarded(effect.site, wanted.origin, offset, record))
    return History(found, through, 0)


def _forwarded(site: SiteId, origin: Any, offset: int, record: Published) -> Forwarded:
    return Forwarded(
        link=site,
        link_epoch=0,
        origin=origin,
        offset=offset,
        path=(site,),
        producer=record.producer,
        incarnation=record.incarnation,
        sequence=record.sequence,
        at_ms=record.at_ms,
        body=record.body,
    )
