"""Runs a scenario file: directives, and what came of them beside each, in the manner of etcd raft's testdata.

A file is a list of blocks, parted by blank lines: one or more directives, a line ``----``, what the world told
meanwhile. Lines that begin with # are for the reader. With REWRITE_SCENARIOS=1 in the environment what really comes
out is written into the file; read the difference before you keep it.

================================  ==================================================================================
sites A: a1 a2 / B: b1            make the world; a line of its own before everything else; every site has a link to
                                  every other one, or, as ``sites in a line ...``, to the one before and behind it;
                                  as ``sites small ...``, with small bounds of copies and of what is in memory
client NAME SESSION at P          a client attaches; ``window=1`` for a small one; ``expiry=3``: the session expires
                                  when nobody was attached for three seconds; ``receiver-expiry=3``: so does the
                                  receiver's registration; ``reliability=events``: best effort of events, ``=none``: of
                                  its connection too; ``queue=3 discard=lifo``: the session stores three at most, and
                                  loses the newest;
                                  ``order=priority``: it is given by priority, the number modulo 3; ``polls``: it takes
                                  one at a time, every 4 ms;
                                  ``as=eve password=x``: as that principal, and with that password;
                                  ``roams``: it goes to the nearest proxy, and on to a nearer one;
                                  ``receiver=c``: another incarnation of that receiver; ``version=2``: its library
                                  speaks another version
access NAME WHO=LEVEL/PASSWORD .. have it so that these principals may do that, and nobody else anything; ``anybody`` is
                                  whoever names none; nothing behind the ``/``: without a password; no WHO: all is open
subscribe NAME ID EXPRESSION      ask for a subscription; ``ttl=2`` and ``max=3`` before the expression: store what
                                  matches for 2 seconds, and not more than 3; ``key=k``: by the producer's public key k;
                                  ``secure``: nothing where no keys meet
unsubscribe NAME ID, delete NAME  end a subscription; delete the session
publish N N ... at P              a producer at P publishes these numbers; ``key=k`` behind it: by its raw key k;
                                  ``secure``: only where keys meet
move NAME P, leave NAME           the client goes to P; goes away
near NAME P                       this proxy is the nearest one to the client from now on
give SESSION P                    an operator wants the session at P
hang NAME MS                      it has lost its connection, and its proxy hears of that so much later
pause NAME, resume NAME           it does not look at what comes; it does again
lose WHAT [times]                 the next of these handover messages get lost; ``lose answer P``: the registry's to P;
                                  ``lose put P``: what P writes to the changelog
stall P MS                        so long every claim of P is under way
again WHAT                        what was last sent of this kind of handover message comes once more
crash P, wipe P, start P          the proxy dies, its disk stays or goes; it starts
slow P MS                         what P appends from now on takes so much longer; 0: no more
deaf P MS                         so long nothing passes between P and the registry
part P Q MS                       so long no handover message passes between the two
line P Q MS damages=N breaks=N    the two speak over connections, introduced and sealed as a node's, MS under way each
                                  way; a byte of every Nth message is changed; every Nth breaks the connection
version P N                       P, which is down, speaks version N to other proxies from now on, and ours to clients
newer P                           P says of everything something that other proxies have never heard of
strange P Q                       P says to Q what is no message of this version at all
stop P MS                         so long the process does nothing, as a stopped one; what comes meanwhile waits
copy, put-back                    the registry is copied; the registry is put back to that copy
compact                           the registry forgets what watches have not seen: they begin with all there is
quorum MS                         so long the registry answers nobody, and no lease ends
skew P MS                         the clock of P shows so much more than others do
cut, heal                         the links between the sites
lose-end SITE N                   the log of the site loses its last N records, which all proxies there had read
damage SITE KIND                  a bit of the last such record of the site's log is turned over, at rest
damage-store P                    a bit of the first entry that P has on its disk
truncate SITE                     retention: the log of the site keeps nothing of what it has until now
fill P, empty P                   the store of P takes nothing; takes again
unreadable P N                    the next N reads of the store of P fail
run MS                            let time pass
until TEXT                        let time pass until a line with this text is told, for 10 s at most
within MS TEXT                    the same, for so long at most
quiet                             tell nothing more; for scenarios in which only the end matters
check                             end all faults, let time pass, and say what is wrong
================================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import msgspec

from chaos.simulator.environment.environment import ROAMING
from chaos.simulator.environment.secrets import Secrets
from chaos.simulator.kernel.recorder import log_lane
from chaos.simulator.processes.clients import POLL_MS
from chaos.simulator.verdict import heal
from chaos.simulator.world import World
from handover.messages import MoveRequest
from proxy.core.inputs import PeerSent
from waypost.access import LEVELS
from waypost.client.options import AttachOptions
from waypost.identity import ProxyId, SessionId, SiteId
from waypost.messages import VERSION, Credential, Granted
from waypost.queue import Queue
from waypost.reliability import BEST_EFFORT, BEST_EFFORT_EVENTS

POLICY = ("ttl", "max")
RELIABILITY = {"events": BEST_EFFORT_EVENTS, "none": BEST_EFFORT}
"""Words for a reliability below persistent: of events, or of the connection too."""
OPTIONS = (*POLICY, "key", "secure")
IN_A_LINE = "in a line "
SMALL = "small "
SCENARIOS = Path(__file__).parents[2] / "scenarios"


class Scenario:
    """One run of a file; `recorded`: its world has a recording, for a picture."""

    def __init__(self, *, recorded: bool = False) -> None:
        self._recorded = recorded
        self._world: World | None = None
        self._quiet = False
        self._narrated = 0
        self._directives: dict[str, Callable[[str, list[str]], list[str] | None]] = {
            name.removeprefix("do_").replace("_", "-"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }

    @property
    def world(self) -> World:
        """The world of the scenario; the directive `sites` makes it."""
        assert self._world is not None, "the first directive is `sites`"
        return self._world

    def run(self, text: str) -> str:
        """Return the file as it should be."""
        return "\n\n".join(self._block(block) for block in text.strip().split("\n\n")) + "\n"

    def _block(self, block: str) -> str:
        given = block.partition("\n----")[0]
        lines: list[str] = []
        for line in given.splitlines():
            if not line.startswith("#"):
                name, _, rest = line.partition(" ")
                answer = self._directives[name](rest, rest.split()) or []
                lines += self._new_lines() + answer
        if not [line for line in given.splitlines() if not line.startswith("#")]:
            return given
        return "\n".join([given, "----", *lines])

    def _new_lines(self) -> list[str]:
        new = self.world.narrative[self._narrated :]
        self._narrated = len(self.world.narrative)
        return [] if self._quiet else new

    # ------------------------------------------------------------ the world

    def do_sites(self, rest: str, words: list[str]) -> None:
        """`sites A: a1 a2 / B: b1`: make the world."""
        sites = {}
        small, rest = rest.startswith(SMALL), rest.removeprefix(SMALL)
        line = rest.startswith(IN_A_LINE)
        for part in rest.removeprefix(IN_A_LINE).split("/"):
            name, _, proxies = part.partition(":")
            sites[name.strip()] = proxies.split()
        self._world = World(sites, shape="line" if line else "mesh", small=small, recorded=self._recorded)
        self.world.run(400)
        self._narrated = len(self.world.narrative)
        for proxy in self.world.nodes:
            self.world.client(f"producer-{proxy}", None, proxy)

    def do_run(self, rest: str, words: list[str]) -> None:
        """`run MS`: let time pass."""
        self.world.run(int(rest))

    def do_until(self, rest: str, words: list[str]) -> list[str] | None:
        """`until WHAT`: let time pass until something holds, 10 s at most."""
        return self._until(rest, 10_000)

    def do_within(self, rest: str, words: list[str]) -> list[str] | None:
        """`within MS WHAT`: let time pass until something holds, so long at most."""
        return self._until(rest.partition(" ")[2], int(words[0]))

    def _until(self, text: str, for_ms: int) -> list[str] | None:
        start = len(self.world.narrative)
        came = self.world.run(for_ms, lambda: any(text in line for line in self.world.narrative[start:]))
        return None if came else [f"it did not come to this: {text}"]

    def do_quiet(self, rest: str, words: list[str]) -> None:
        """`quiet`: tell nothing more; only the end matters."""
        self._quiet = True

    def do_check(self, rest: str, words: list[str]) -> list[str]:
        """`check`: heal all, and look at the verdict."""
        wrong = heal(self.world)
        lines = self._new_lines()
        for client in self.world.clients.values():
            if client.session is not None:
                lines.append(f"{client.name} has {' '.join(str(number) for _, _, number in client.delivered)}".rstrip())
        return lines + (wrong or ["all is well"])

    # ------------------------------------------------------------ clients

    def do_client(self, rest: str, words: list[str]) -> None:
        """`client NAME SESSION at PROXY [OPTION=VALUE ...]`: a client comes."""
        name, session, _, proxy, *more = words
        options = {option: value for option, _, value in (each.partition("=") for each in more)}
        credential = Credential(options.get("as", ""), options.get("password", ""))
        receiver, version = options.get("receiver", ""), int(options.get("version", VERSION))
        most = int(options.get("queue", 0))
        queue = Queue(most, discard=options.get("discard", "fifo")) if most else None  # type: ignore[arg-type]
        self.world.roaming = ROAMING if "roams" in options else None
        self.world.client(
            name,
            session,
            proxy,
            AttachOptions(
                window=int(options.get("window", 4000)),
                session_expiry_s=int(options.get("expiry", 0)) or None,
                receiver_expiry_s=int(options.get("receiver-expiry", 0)) or None,
                reliability=RELIABILITY.get(options.get("reliability", "")),
                queue=queue,
                order=options.get("order", "any"),  # type: ignore[arg-type]
            ),
            credential=credential,
            receiver=receiver,
            version=version,
            poll_interval_ms=POLL_MS if "polls" in options else 0,
        )
        self.world.run(100)

    def do_access(self, rest: str, words: list[str]) -> None:
        """`access CLIENT WHO=LEVEL/PASSWORD ...`: ask for these rights."""
        name, *listed = words
        grants = {}
        for who, _, what in (each.partition("=") for each in listed):
            level, _, password = what.partition("/")
            grants["" if who == "anybody" else who] = Granted([*LEVELS[level]], password)
        self.world.clients[name].set_access(grants)

    def do_subscribe(self, rest: str, words: list[str]) -> None:
        """`subscribe CLIENT ID [OPTION=VALUE ...] EXPRESSION`: ask for a subscription."""
        options = [*takewhile(lambda word: word.partition("=")[0] in OPTIONS, words[2:])]
        expression = rest.split(maxsplit=2 + len(options))[2 + len(options)]
        policy = dict(word.split("=") for word in options if word.startswith(POLICY))
        ttl_s, max_count = (int(policy[name]) if name in policy else None for name in POLICY)
        self.world.clients[words[0]].subscribe(words[1], expression, ttl_s, max_count, Secrets.of(options))

    def do_unsubscribe(self, rest: str, words: list[str]) -> None:
        """`unsubscribe CLIENT ID`: ask for the end of a subscription."""
        self.world.clients[words[0]].unsubscribe(words[1])

    def do_delete(self, rest: str, words: list[str]) -> None:
        """`delete CLIENT`: ask for the end of the session."""
        self.world.clients[rest].delete()

    def do_publish(self, rest: str, words: list[str]) -> None:
        """`publish N ... at PROXY`: a producer there publishes these numbers."""
        place = words.index("at")
        for number in words[:place]:
            self.world.clients[f"producer-{words[place + 1]}"].publish(int(number), Secrets.of(words[place + 2 :]))

    def do_move(self, rest: str, words: list[str]) -> None:
        """`move CLIENT PROXY`: connect elsewhere."""
        self.world.clients[words[0]].go(words[1])

    def do_near(self, rest: str, words: list[str]) -> None:
        """`near CLIENT PROXY`: this proxy is the nearest one to the client from now on."""
        self.world.come_near(*words)

    def do_give(self, rest: str, words: list[str]) -> None:
        """`give SESSION PROXY`: the owner offers the session."""
        row = self.world.registry.owners[SessionId(words[0])]
        owner = self.world.nodes[row.proxy]
        owner.step_engine(PeerSent(row.proxy, MoveRequest(SessionId(words[0]), row.epoch, ProxyId(words[1]))))

    def do_leave(self, rest: str, words: list[str]) -> None:
        """`leave CLIENT`: disconnect, and stay away."""
        self.world.clients[words[0]].leave()

    def do_hang(self, rest: str, words: list[str]) -> None:
        """`hang CLIENT MS`: its connection is lost, and its proxy hears of that so much later."""
        wire = self.world.clients[words[0]].wire
        assert wire is not None, f"{words[0]} has no connection"
        wire.tear(int(words[1]))

    def do_pause(self, rest: str, words: list[str]) -> None:
        """`pause CLIENT`: take no more of what is delivered."""
        self.world.clients[words[0]].paused = True

    def do_resume(self, rest: str, words: list[str]) -> None:
        """`resume CLIENT`: take what was delivered."""
        self.world.clients[words[0]].paused = False
        self.world.clients[words[0]].take()

    # ------------------------------------------------------------ faults

    def do_lose(self, rest: str, words: list[str]) -> None:
        """`lose WHAT [TIMES]`: the next messages of that kind are lost; once if no number is given.

        WHAT is the name of a handover message, `answer PROXY` (the registry's) or `put PROXY` (into its changelog).
        """
        times = int(words.pop()) if words[-1].isdigit() else 1
        self.world.lose_next[" ".join(words)] += times

    def do_again(self, rest: str, words: list[str]) -> None:
        """`again WHAT`: the last handover message of that kind comes once more."""
        self.world.repeat(rest)

    def do_stall(self, rest: str, words: list[str]) -> None:
        """`stall PROXY MS`: for so long all claims of the proxy are under way."""
        self.world.stalled[words[0]] = self.world.clock.now_ms() + int(words[1])

    def do_slow(self, rest: str, words: list[str]) -> None:
        """`slow PROXY MS`: what it appends takes so much longer."""
        self.world.nodes[words[0]].append_ms = int(words[1])

    def do_crash(self, rest: str, words: list[str]) -> None:
        """`crash PROXY`: the process ends; its disk stays."""
        self.world.nodes[rest].crash()

    def do_wipe(self, rest: str, words: list[str]) -> None:
        """`wipe PROXY`: the process ends, and its disk is lost."""
        self.world.nodes[rest].crash(disk_lost=True)

    def do_start(self, rest: str, words: list[str]) -> None:
        """`start PROXY`: a process begins."""
        self.world.nodes[rest].start()

    def do_deaf(self, rest: str, words: list[str]) -> None:
        """`deaf PROXY MS`: nothing passes between it and the registry."""
        self.world.nodes[words[0]].deaf_until = self.world.clock.now_ms() + int(words[1])

    def do_part(self, rest: str, words: list[str]) -> None:
        """`part PROXY PROXY MS`: no handover message passes between the two."""
        one, other, for_ms = words
        self.world.part(one, other, int(for_ms))
        self.world.part(other, one, int(for_ms))

    def do_line(self, rest: str, words: list[str]) -> None:
        """`line PROXY PROXY MS [damages=N] [breaks=N]`: the two speak over connections, as nodes do, with a delay of MS
        each way; of N frames the last one is damaged, or breaks the connection.
        """
        one, other, ms, *more = words
        options = {option: int(value) for option, _, value in (each.partition("=") for each in more)}
        for way in self.world.connect_proxies(one, other):
            way.ms, way.damages, way.breaks = int(ms), options.get("damages", 0), options.get("breaks", 0)

    def do_version(self, rest: str, words: list[str]) -> None:
        """`version PROXY N`: it speaks another version of the protocol."""
        node = self.world.nodes[words[0]]
        node.version = int(words[1])
        for other in self.world.nodes.keys() - {node.proxy}:
            self.world.connect_proxies(node.proxy, other)

    def do_newer(self, rest: str, words: list[str]) -> None:
        """`newer PROXY`: it writes what others do not know."""
        self.world.nodes[rest].newer = True

    def do_strange(self, rest: str, words: list[str]) -> None:
        """`strange PROXY PROXY`: one sends a message that the other does not know."""
        way, _ = self.world.connect_proxies(*words)
        way.carry(msgspec.msgpack.encode({"type": "prepare in parts", "session": "s"}))

    def do_compact(self, rest: str, words: list[str]) -> None:
        """`compact`: the registry forgets its history."""
        self.world.compact()

    def do_copy(self, rest: str, words: list[str]) -> None:
        """`copy`: copy the registry."""
        self.world.copy_registry()

    def do_put_back(self, rest: str, words: list[str]) -> None:
        """`put-back`: put the registry back to the copy."""
        self.world.put_registry_back()

    def do_quorum(self, rest: str, words: list[str]) -> None:
        """`quorum MS`: the registry has none for so long."""
        self.world.lose_quorum(int(rest))

    def do_stop(self, rest: str, words: list[str]) -> None:
        """`stop PROXY MS`: the process stands still."""
        self.world.nodes[words[0]].stall(int(words[1]))

    def do_skew(self, rest: str, words: list[str]) -> None:
        """`skew PROXY MS`: its time of day is wrong by so much."""
        self.world.nodes[words[0]].clock.skew_ms = int(words[1])

    def do_cut(self, rest: str, words: list[str]) -> None:
        """`cut`: nothing passes on links."""
        for link in self.world.links:
            link.set_cut(records=True, words=True)

    def do_heal(self, rest: str, words: list[str]) -> None:
        """`heal`: links work again."""
        for link in self.world.links:
            link.set_cut(records=False, words=False)

    def do_lose_end(self, rest: str, words: list[str]) -> None:
        """`lose-end SITE N`: the site's log loses its last records."""
        self.world.lose_end(SiteId(words[0]), int(words[1]))

    def do_damage(self, rest: str, words: list[str]) -> None:
        """`damage SITE TAG`: the last record of that kind cannot be read any more."""
        log = self.world.logs[SiteId(words[0])]
        *_, last = (at for at, record in log.everything() if record.__struct_config__.tag == words[1])
        assert log.damage(last)

    def do_damage_store(self, rest: str, words: list[str]) -> None:
        """`damage-store PROXY`: a bit of the first entry of its store is turned over."""
        assert self.world.nodes[words[0]].store.damage(0)

    def do_truncate(self, rest: str, words: list[str]) -> None:
        """`truncate SITE`: retention removes all that the log has."""
        log = self.world.logs[SiteId(rest)]
        log.truncate(len(log))
        self.world.note(f"the log of {rest} begins at {len(log)} from now on", narrate=True, by=log_lane(rest))

    def do_fill(self, rest: str, words: list[str]) -> None:
        """`fill PROXY`: its disk is full."""
        self.world.nodes[rest].full = True

    def do_unreadable(self, rest: str, words: list[str]) -> None:
        """`unreadable PROXY N`: so many entries of its store cannot be read."""
        self.world.nodes[words[0]].unreadable = int(words[1])

    def do_empty(self, rest: str, words: list[str]) -> None:
        """`empty PROXY`: its disk has room again."""
        self.world.nodes[rest].full = False


def run_file(path: Path, *, rewrite: bool) -> tuple[str, str]:
    """Return what the file says, and what it should say."""
    expected = path.read_text()
    found = Scenario().run(expected)
    if rewrite:
        path.write_text(found)
    return expected, found
