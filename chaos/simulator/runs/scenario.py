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
                                  ``ahead``: its state is beyond the ends of all logs, as one of another federation;
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
forget-state NAME                 its program ends, with its delivery state; it stays away
pause NAME, resume NAME           it does not look at what comes; it does again
lose WHAT [times]                 the next of these handover messages get lost; ``lose answer P``: the registry's to P;
                                  ``lose put P``: what P writes to the changelog
stall P MS                        so long every claim of P is under way, and its announcement
again WHAT                        what was last sent of this kind of handover message comes once more
crash P, wipe P, start P          the proxy dies, its disk stays or goes; it starts
end P                             it ends in good order
slow P MS                         what P appends from now on takes so much longer; 0: no more; with ``journal`` behind
                                  it: what it writes to its journal
deaf P MS                         so long nothing passes between P and the registry
part P Q MS                       so long no handover message passes between the two
line P Q MS damages=N breaks=N    the two speak over connections, introduced and sealed as a node's, MS under way each
                                  way; a byte of every Nth message is changed; every Nth breaks the connection
version P N                       P, which is down, speaks version N to other proxies from now on, and ours to clients
newer P                           P says of everything something that other proxies have never heard of
strange P Q                       P says to Q what is no message of this version at all
stop P MS                         so long the process does nothing, as a stopped one; what comes meanwhile waits
drain P RATE|off                  an operator drains P, so many sessions a second; or ends that
copy, put-back                    the registry is copied; the registry is put back to that copy
compact                           the registry forgets what watches have not seen: they begin with all there is
quorum MS                         so long the registry answers nobody, and no lease ends
skew P MS                         the clock of P shows so much more than others do
cut [A B], heal [A B]             the links between all sites; or the one between these two
lose-end SITE N                   the log of the site loses its last N records, which all proxies there had read
power-cut SITE N [M]              all proxies of the site die, its log loses its last N records, and they start again;
                                  each disk has lost its last M writes
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
from chaos.simulator.processes.links import Link
from chaos.simulator.verdict import heal
from chaos.simulator.world import World
from federation.ports import DrainRow
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
    """One run of a file; `recorded`: its world has a recording, for a picture.

    Each directive ``NAME ...`` of the file is performed by a method ``do_NAME(rest, words)``: `rest` is the line behind
    the name, `words` the same, split at blanks; most methods need one of them. A method returns further lines for the
    file, or None. KeyError: there is no such client, proxy or site.
    """

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
        """The world of the scenario. Raises AssertionError before the directive `sites`, which makes it."""
        assert self._world is not None, "the first directive is `sites`"
        return self._world

    def run(self, text: str) -> str:
        """Run all blocks of a scenario file, and return the text that the file should have: with what really came out.

        Args:
            text: of the file; what stands below ``----`` in a block is ignored.

        Raises:
            KeyError: there is no such directive, client, proxy or site.
            AssertionError: the first directive is not `sites`, or a directive cannot be performed now.
            ValueError: an argument is no number, or there are too few or too many.
            IndexError: an argument is missing.
            TypeError: an argument is missing, or is one too many.
            WaypostError: an option of `client` is not valid.
        """
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
        """Perform `sites [small] [in a line] A: a1 a2 / B: b1` (`rest`: its arguments): make the world, let 400 ms
        pass, and add a producer at each proxy.

        With `small`, bounds of copies and of memory are small; with `in a line`, each site has links to the sites
        before and behind it alone, else to all others.
        """
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
        """Perform `run MS` (`rest`: its argument): let MS ms pass."""
        self.world.run(int(rest))

    def do_until(self, rest: str, words: list[str]) -> list[str] | None:
        """Perform `until TEXT` (`rest`: its argument): let time pass until a line of the narrative has TEXT.

        After 10 s it ends, and returns a line that says so; else None. Earlier lines do not count.
        """
        return self._until(rest, 10_000)

    def do_within(self, rest: str, words: list[str]) -> list[str] | None:
        """Perform `within MS TEXT`: let time pass until a line of the narrative has TEXT.

        After MS ms it ends, and returns a line that says so; else None. Earlier lines do not count.

        Args:
            rest: the arguments.
            words: the arguments, split.
        """
        return self._until(rest.partition(" ")[2], int(words[0]))

    def _until(self, text: str, for_ms: int) -> list[str] | None:
        start = len(self.world.narrative)
        came = self.world.run(for_ms, lambda: any(text in line for line in self.world.narrative[start:]))
        return None if came else [f"it did not come to this: {text}"]

    def do_quiet(self, rest: str, words: list[str]) -> None:
        """Perform `quiet` (no arguments): leave the narrative out of the results from now on; only the end matters."""
        self._quiet = True

    def do_check(self, rest: str, words: list[str]) -> list[str]:
        """Perform `check` (no arguments): end all faults, and return what came of it.

        The lines are the narrative meanwhile, what each receiver was given, and the violations, or "all is well".
        """
        wrong = heal(self.world)
        lines = self._new_lines()
        for client in self.world.clients.values():
            if client.session is not None:
                lines.append(f"{client.name} has {' '.join(str(number) for _, _, number in client.delivered)}".rstrip())
        return lines + (wrong or ["all is well"])

    # ------------------------------------------------------------ clients

    def do_client(self, rest: str, words: list[str]) -> None:
        """Perform `client NAME SESSION at PROXY [OPTION[=VALUE] ...]` (`words`: its arguments): add a client.

        100 ms pass, in which the client can attach. The options are window, expiry, receiver-expiry, reliability,
        queue, discard, order, polls, roams, ahead, as, password, receiver, version; the table of directives, at the top
        of this module, explains each. Any other option, and an unknown reliability, are ignored.
        """
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
            ahead="ahead" in options,
        )
        self.world.run(100)

    def do_access(self, rest: str, words: list[str]) -> None:
        """Perform `access CLIENT WHO=LEVEL/PASSWORD ...` (`words`: its arguments): have the client ask for this access.

        WHO: a principal, or ``anybody``; LEVEL: user, admin or owner; no WHO: the session is open to everybody.
        """
        name, *listed = words
        grants = {}
        for who, _, what in (each.partition("=") for each in listed):
            level, _, password = what.partition("/")
            grants["" if who == "anybody" else who] = Granted([*LEVELS[level]], password)
        self.world.clients[name].set_access(grants)

    def do_subscribe(self, rest: str, words: list[str]) -> None:
        """Perform `subscribe CLIENT ID [OPTION ...] EXPRESSION`: have the client ask for a subscription.

        The options are ``ttl=SECONDS``, ``max=COUNT``, ``key=NAME``, and ``secure`` (nothing where no keys meet). For
        an ID that the client has subscribed, expression, policy and keys are replaced, by none where no option says so;
        an ID that has ended must not be used again.

        Args:
            rest: the arguments.
            words: the arguments, split.
        """
        options = [*takewhile(lambda word: word.partition("=")[0] in OPTIONS, words[2:])]
        expression = rest.split(maxsplit=2 + len(options))[2 + len(options)]
        policy = dict(word.split("=") for word in options if word.startswith(POLICY))
        ttl_s, max_count = (int(policy[name]) if name in policy else None for name in POLICY)
        self.world.clients[words[0]].subscribe(words[1], expression, ttl_s, max_count, Secrets.of(options))

    def do_unsubscribe(self, rest: str, words: list[str]) -> None:
        """Perform `unsubscribe CLIENT ID` (`words`: its arguments): have the client ask for a subscription to end."""
        self.world.clients[words[0]].unsubscribe(words[1])

    def do_delete(self, rest: str, words: list[str]) -> None:
        """Perform `delete CLIENT` (`rest`: its argument): have the client ask for the session to be deleted."""
        self.world.clients[rest].delete()

    def do_publish(self, rest: str, words: list[str]) -> None:
        """Perform `publish N ... at PROXY [OPTION ...]` (`words`: its arguments): publish these numbers there.

        Options: ``key=NAME``, and ``secure``: only where keys meet.
        """
        place = words.index("at")
        for number in words[:place]:
            self.world.clients[f"producer-{words[place + 1]}"].publish(int(number), Secrets.of(words[place + 2 :]))

    def do_move(self, rest: str, words: list[str]) -> None:
        """Perform `move CLIENT PROXY` (`words`: its arguments): have the client connect to another proxy."""
        self.world.clients[words[0]].go(words[1])

    def do_near(self, rest: str, words: list[str]) -> None:
        """Perform `near CLIENT PROXY` (`words`: its arguments): let the proxy be the client's nearest one as of now."""
        self.world.come_near(*words)

    def do_give(self, rest: str, words: list[str]) -> None:
        """Perform `give SESSION PROXY` (`words`: its arguments): have an operator request the session for the proxy."""
        row = self.world.registry.owners[SessionId(words[0])]
        owner = self.world.nodes[row.proxy]
        owner.step(PeerSent(row.proxy, MoveRequest(SessionId(words[0]), row.epoch, ProxyId(words[1]))))

    def do_leave(self, rest: str, words: list[str]) -> None:
        """Perform `leave CLIENT` (`words`: its argument): have the client disconnect, and stay away."""
        self.world.clients[words[0]].leave()

    def do_hang(self, rest: str, words: list[str]) -> None:
        """Perform `hang CLIENT MS` (`words`: its arguments): lose the client's connection; the proxy learns of that
        later.

        MS is the time until then, in ms. Raises AssertionError: the client has no connection.
        """
        wire = self.world.clients[words[0]].wire
        assert wire is not None, f"{words[0]} has no connection"
        wire.tear(int(words[1]))

    def do_pause(self, rest: str, words: list[str]) -> None:
        """Perform `pause CLIENT` (`words`: its argument): have the client read no more of what is delivered."""
        self.world.clients[words[0]].paused = True

    def do_resume(self, rest: str, words: list[str]) -> None:
        """Perform `resume CLIENT` (`words`: its argument): have the client read what was delivered, and go on."""
        self.world.clients[words[0]].paused = False
        self.world.clients[words[0]].take()

    def do_forget_state(self, rest: str, words: list[str]) -> None:
        """Perform `forget-state CLIENT` (`words`: its argument): end the client's program, which stays away, with all
        that it knew.

        Nothing happens to a client that waits for an answer, or for another reason of :meth:`Client.lose_state`.
        """
        self.world.clients[words[0]].lose_state()

    # ------------------------------------------------------------ faults

    def do_lose(self, rest: str, words: list[str]) -> None:
        """Perform `lose WHAT [TIMES]` (`words`: its arguments): lose the next TIMES messages, by default one.

        WHAT is the name of a handover message or of a message of links, `answer PROXY` (the registry's, to a request
        that writes) or `put PROXY` (into its changelog). Handover messages that go over a connection (`line`) are not
        lost.
        """
        times = int(words.pop()) if words[-1].isdigit() else 1
        self.world.lose_next[" ".join(words)] += times

    def do_again(self, rest: str, words: list[str]) -> None:
        """Perform `again WHAT` (`rest`: its argument): send each proxy's last handover message of this kind anew."""
        self.world.repeat(rest)

    def do_stall(self, rest: str, words: list[str]) -> None:
        """Perform `stall PROXY MS` (`words`: its arguments): keep all requests by which the proxy writes rows under way
        until MS ms from now; requests that are under way already are not kept.
        """
        self.world.stalled[words[0]] = self.world.clock.now_ms() + int(words[1])

    def do_slow(self, rest: str, words: list[str]) -> None:
        """Perform `slow PROXY MS [journal]` (`words`: its arguments): let every later append of the proxy, or every
        later write to its journal, take MS ms more.
        """
        node = self.world.nodes[words[0]]
        if words[2:] == ["journal"]:
            node.journal_ms = int(words[1])
        else:
            node.append_ms = int(words[1])

    def do_crash(self, rest: str, words: list[str]) -> None:
        """Perform `crash PROXY` (`rest`: its argument): end the proxy's process at once; its disk stays."""
        self.world.nodes[rest].crash()

    def do_wipe(self, rest: str, words: list[str]) -> None:
        """Perform `wipe PROXY` (`rest`: its argument): end the proxy's process at once, and lose its disk."""
        self.world.nodes[rest].crash(disk_lost=True)

    def do_start(self, rest: str, words: list[str]) -> None:
        """Perform `start PROXY` (`rest`: its argument): begin a process of the proxy, which is down."""
        self.world.nodes[rest].start()

    def do_end(self, rest: str, words: list[str]) -> None:
        """Perform `end PROXY` (`rest`: its argument): end the proxy's process in good order, as after SIGTERM."""
        self.world.nodes[rest].shut_down()

    def do_deaf(self, rest: str, words: list[str]) -> None:
        """Perform `deaf PROXY MS` (`words`: its arguments): cut the proxy off from the registry for MS ms."""
        self.world.nodes[words[0]].deaf_until = self.world.clock.now_ms() + int(words[1])

    def do_part(self, rest: str, words: list[str]) -> None:
        """Perform `part P Q MS` (`words`: its arguments): lose all handover messages between two proxies for MS ms,
        unless these go over a connection (`line`, `version`, `strange`).
        """
        one, other, for_ms = words
        self.world.part(one, other, int(for_ms))
        self.world.part(other, one, int(for_ms))

    def do_line(self, rest: str, words: list[str]) -> None:
        """Perform `line PROXY PROXY MS [damages=N] [breaks=N]` (`words`: its arguments): connect two proxies.

        Their handover messages go over connections as between nodes, with a delay of MS ms each way. Of N frames the
        last one is damaged, or breaks the connection.
        """
        one, other, ms, *more = words
        options = {option: int(value) for option, _, value in (each.partition("=") for each in more)}
        for way in self.world.connect_proxies(one, other):
            way.ms, way.damages, way.breaks = int(ms), options.get("damages", 0), options.get("breaks", 0)

    def do_version(self, rest: str, words: list[str]) -> None:
        """Perform `version PROXY N` (`words`: its arguments): let the proxy speak version N to all other proxies.

        Handover messages between these proxies go over connections from now on.
        """
        node = self.world.nodes[words[0]]
        node.version = int(words[1])
        for other in self.world.nodes.keys() - {node.proxy}:
            self.world.connect_proxies(node.proxy, other)

    def do_newer(self, rest: str, words: list[str]) -> None:
        """Perform `newer PROXY` (`rest`: its argument): let the proxy add an unknown field to its handover messages."""
        self.world.nodes[rest].newer = True

    def do_strange(self, rest: str, words: list[str]) -> None:
        """Perform `strange P Q` (`words`: its arguments): send Q, from P, a message of a kind that no version knows.

        Handover messages between the two proxies go over connections from now on.
        """
        way, _ = self.world.connect_proxies(*words)
        way.carry(msgspec.msgpack.encode({"type": "prepare in parts", "session": "s"}))

    def do_compact(self, rest: str, words: list[str]) -> None:
        """Perform `compact` (no arguments): have the registry drop the events that watches have not seen."""
        self.world.compact()

    def do_drain(self, rest: str, words: list[str]) -> None:
        """Perform `drain P RATE|off` (`words`: its arguments): an operator drains the proxy, so many sessions a second,
        or ends that.
        """
        proxy, rate = words
        self.world.drain(ProxyId(proxy), None if rate == "off" else DrainRow(rate=float(rate)))

    def do_copy(self, rest: str, words: list[str]) -> None:
        """Perform `copy` (no arguments): copy the registry for `put-back`."""
        self.world.copy_registry()

    def do_put_back(self, rest: str, words: list[str]) -> None:
        """Perform `put-back` (no arguments): put the registry back to its copy, if the promises hold after that."""
        self.world.put_registry_back()

    def do_quorum(self, rest: str, words: list[str]) -> None:
        """Perform `quorum MS` (`rest`: its argument): take the registry's quorum away for MS ms."""
        self.world.lose_quorum(int(rest))

    def do_stop(self, rest: str, words: list[str]) -> None:
        """Perform `stop PROXY MS` (`words`: its arguments): stop the proxy's process where it is, for MS ms."""
        self.world.nodes[words[0]].stall(int(words[1]))

    def do_skew(self, rest: str, words: list[str]) -> None:
        """Perform `skew PROXY MS` (`words`: its arguments): let the proxy's time of day be MS ms ahead of the world."""
        self.world.nodes[words[0]].clock.skew_ms = int(words[1])

    def do_cut(self, rest: str, words: list[str]) -> None:
        """Perform `cut [SITE SITE]`: cut the link between two sites, or all links, in both directions. Nothing happens
        if the two have no link.
        """
        for link in self._links_between(words):
            link.set_cut(records=True, words=True)

    def do_heal(self, rest: str, words: list[str]) -> None:
        """Perform `heal [SITE SITE]`: end the cuts of the link between two sites, or of all links. Nothing happens if
        the two have no link.
        """
        for link in self._links_between(words):
            link.set_cut(records=False, words=False)

    def _links_between(self, sites: list[str]) -> list[Link]:
        return [link for link in self.world.links if not sites or {link.near, link.far} == set(sites)]

    def do_lose_end(self, rest: str, words: list[str]) -> None:
        """Perform `lose-end SITE N` (`words`: its arguments): let the site's log lose its last N records, but for the
        first one that the log has.

        The log goes away now, and comes back without these records LOG_AWAY_MS later; or whole, where nobody could
        notice the loss (:meth:`World.lose_end`).
        """
        self.world.lose_end(SiteId(words[0]), int(words[1]))

    def do_power_cut(self, rest: str, words: list[str]) -> None:
        """Perform `power-cut SITE N [M]` (`words`: its arguments): kill all proxies of the site together with its log,
        which loses its last N records; they start again when it is back, each with a disk that has lost its last M
        writes; without M, none (:meth:`World.cut_power`).
        """
        site, records, writes = (*words, "0")[:3]
        self.world.cut_power(SiteId(site), int(records), writes_lost=int(writes))

    def do_damage(self, rest: str, words: list[str]) -> None:
        """Perform `damage SITE TAG` (`words`: its arguments): damage the last record with this tag in the site's log.

        Raises:
            ValueError: there is no such record.
            AssertionError: the record cannot be damaged, or is damaged already.
        """
        log = self.world.logs[SiteId(words[0])]
        *_, last = (at for at, record in log.everything() if record.__struct_config__.tag == words[1])
        assert log.damage(last)

    def do_damage_store(self, rest: str, words: list[str]) -> None:
        """Perform `damage-store PROXY` (`words`: its argument): flip a bit in the first entry of the proxy's store.

        Raises AssertionError: the store has no entries.
        """
        assert self.world.nodes[words[0]].store.damage(0)

    def do_truncate(self, rest: str, words: list[str]) -> None:
        """Perform `truncate SITE` (`rest`: its argument): remove all that the site's log has now, as retention does."""
        log = self.world.logs[SiteId(rest)]
        log.truncate(len(log))
        self.world.note(f"the log of {rest} begins at {len(log)} from now on", narrate=True, by=log_lane(rest))

    def do_fill(self, rest: str, words: list[str]) -> None:
        """Perform `fill PROXY` (`rest`: its argument): let every write to the proxy's store fail, until `empty`."""
        self.world.nodes[rest].full = True

    def do_unreadable(self, rest: str, words: list[str]) -> None:
        """Perform `unreadable PROXY N` (`words`: its arguments): let the next N reads of the proxy's store fail."""
        self.world.nodes[words[0]].unreadable = int(words[1])

    def do_empty(self, rest: str, words: list[str]) -> None:
        """Perform `empty PROXY` (`rest`: its argument): let the proxy's store take writes again."""
        self.world.nodes[rest].full = False


def run_file(path: Path, *, rewrite: bool) -> tuple[str, str]:
    """Run a scenario file; return its text, and the text that it should have. They are equal if all came as it says.

    Args:
        path: of the file.
        rewrite: whether to write the second text into the file.

    Raises:
        OSError: the file cannot be read or written.
        KeyError: as :meth:`Scenario.run`.
        AssertionError: as :meth:`Scenario.run`.
        ValueError: as :meth:`Scenario.run`.
        IndexError: as :meth:`Scenario.run`.
        TypeError: as :meth:`Scenario.run`.
        WaypostError: as :meth:`Scenario.run`.
    """
    expected = path.read_text()
    found = Scenario().run(expected)
    if rewrite:
        path.write_text(found)
    return expected, found
