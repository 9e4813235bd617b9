"""Every anomaly that the audit knows, planted in one run, and the same in evidence that has holes.

Each is in a session, a writer or a site of its own, beside sessions that are in order.
"""

from __future__ import annotations

from collections import Counter

from tests.spark.runs import Run, origin
from waypost.facts import Departure, Fact, FactKind, GapCause, OwnedCause, RemovalPolicy, encode_fact
from waypost.identity import GENERATION, Coordinate, Incarnation, Origin, ProxyId, SessionId
from waypost.keys import OPEN, Key, Protection
from waypost.records import Closed, InterestRegistered, InterestsExpired, Published

A, B, C, D, E = (origin(site) for site in "ABCDE")
NOTHING = {A: -1, B: -1}
EVERYTHING = {A: 10_000, B: 10_000, C: 10_000, D: 10_000, E: 10_000}
WANTED = "topic == 'x'"
AGAIN = GENERATION + 1
"""The first epoch of a session that was deleted and created again."""
TTL, COUNT = RemovalPolicy.TIME_TO_LIVE, RemovalPolicy.MAX_COUNT


class AnomalyRun:
    """The run, and what is expected to be found in it."""

    def __init__(self) -> None:
        self.run = Run()
        self.expected: Counter[tuple[str, str]] = Counter()
        self.site_a = [self.run.publish("A", topic="x", n=n) for n in range(8)]
        self.site_b = [self.run.publish("B", topic="x", n=n) for n in range(3)]
        self.unwanted = self.run.publish("A", topic="y")
        self.first_try = self.run.publish("A", "w", 1, topic="retried")
        self.second_try = self.run.publish("B", "w", 1, topic="retried")

    def expect(self, code: str, where: str, count: int = 1) -> None:
        self.expected[code, where] += count

    def session(self, name: str, expression: str = WANTED, above: dict[str, int] | None = None) -> str:
        """Subscribe; everything up to the end will have been handed over."""
        self.run.subscribe(name, expression, NOTHING if above is None else above)
        self.run.drain(name, EVERYTHING)
        return name

    def got(self, session: str, *missing: int, epoch: int = 1, proxy: str = "a") -> None:
        """Let the session receive everything but those of `mine`."""
        local = [coordinate for n, coordinate in enumerate(self.site_a) if n not in missing]
        self.run.receive(session, *local, *self.site_b, epoch=epoch, proxy=proxy)

    # ---- what is lost

    def losses(self) -> None:
        run, local = self.run, self.site_a
        run.own(self.session("lost"), "a", 1)
        self.got("lost", 2, 5)
        self.expect("L1", "lost", 2)
        # A session nobody ever received anything for is owed to somebody all the same.
        run.subscribe("nobody", WANTED, {A: local[5].offset})
        self.expect("L5", "nobody", 2)
        # One receiver of two has all.
        self.session("half")
        self.got("half")
        run.receive("half", *local[1:], *self.site_b, receiver="r2")
        run.drain("half", EVERYTHING, "r2")
        self.expect("L1", "half")
        # Undrained; and drained, but with a hole in what the receiver wrote.
        run.subscribe("unseen", WANTED, NOTHING)
        self.got("unseen", 7)
        self.expect("L5", "unseen")
        self.session("torn")
        self.got("torn", 3)
        del run.journals["torn/r"][0]
        self.expect("A1", "torn/r")
        self.expect("L3", "torn", 8)
        run.subscribe("behind", WANTED, NOTHING)
        self.got("behind", 1, 6)
        run.drain("behind", {A: local[3].offset, B: 10_000})
        self.expect("L1", "behind")
        self.expect("L3", "behind")

    def losses_in_handovers(self) -> None:
        run, local = self.run, self.site_a
        for session, cause in (
            ("moved", OwnedCause.HANDOVER),
            ("failed over", OwnedCause.FAILOVER),
            ("restarted", OwnedCause.RESTART),
        ):
            run.own(self.session(session), "a", 1)
            run.receive(session, *local[:3], *self.site_b)
            run.own(session, "b", 2, cause)
            run.receive(session, *local[4:], epoch=2, proxy="b")
            self.expect("L1" if cause == OwnedCause.RESTART else "L2", session)
        # Lost in the first epoch, and nothing to do with the later handover.
        run.own(self.session("before"), "a", 1)
        run.receive("before", local[0], *local[2:5], *self.site_b)
        run.own("before", "b", 2, OwnedCause.HANDOVER)
        run.receive("before", *local[5:], epoch=2, proxy="b")
        self.expect("L1", "before")
        # Nothing came any more after the handover.
        run.own(self.session("silent"), "a", 1)
        run.receive("silent", *local[:6], *self.site_b)
        run.own("silent", "b", 2, OwnedCause.HANDOVER)
        self.expect("L2", "silent", 2)

    def excuses(self) -> None:
        run, local = self.run, self.site_a
        self.session("expired")
        run.attest("policy", "expired", subscription="s1", ttl_s=60)
        self.got("expired", 1, 2)
        gone = [local[1].offset, local[3].offset]
        run.attest("removed", "expired", at_ms=60_000, origin=A, offsets=gone, policies=[TTL])
        self.expect("L4", "expired")
        self.expect("L1", "expired")
        # Removed by a policy that nobody had stated.
        self.session("robbed")
        self.got("robbed", 1)
        run.attest("policy", "robbed", subscription="s1")
        run.attest("removed", "robbed", origin=A, offsets=[local[1].offset], policies=[TTL])
        self.expect("L1", "robbed")
        # One session was deleted before its receiver had everything.
        self.session("deleted")
        self.got("deleted", 1, 2, 3)
        upto = {A: local[2].offset} | {origin: offset for origin, offset in EVERYTHING.items() if origin != A}
        run.attest("deleted", "deleted", frontier=upto, reason="receiver r asked for it")
        self.expect("L4", "deleted", 2)
        self.session("gap")
        self.got("gap", 1, 2, 5)
        run.attest("gap", "gap", origin=A, offsets=[local[0].offset, local[3].offset], cause=GapCause.RETENTION)
        self.expect("G1", "gap")
        self.expect("L1", "gap")
        # A queue discards, if it was stated, and of a kind that does.
        for name, by, policy in (
            ("bounded", RemovalPolicy.MAX_QUEUE, {"max_count": 2, "discard": "fifo"}),
            ("expired by itself", RemovalPolicy.DEADLINE, {"discard": "fifo", "deadlines": True}),
            ("bounded, and expired", RemovalPolicy.DEADLINE, {"max_count": 2, "discard": "fifo"}),
        ):
            self.session(name)
            run.attest("policy", name, **policy)
            self.got(name, 1)
            run.attest("removed", name, origin=A, offsets=[local[1].offset], policies=[by])
        self.expect("L4", "bounded")
        self.expect("L4", "expired by itself")
        self.expect("L1", "bounded, and expired")
        # What waited for a receiver went with its proxy; and for one that had never said that it may.
        raised = {"lapsed": [True], "lapsed and promised": [False], "lapsed and raised": [True, False]}
        for name, levels in raised.items():
            self.session(name)
            for best_effort in levels:
                run.attest("attached", name, receiver="r", frontier={}, best_effort=best_effort)
            self.got(name, 1, 2, 5)
            offsets = [local[1].offset, local[3].offset]
            run.attest("gap", name, receiver="r", origin=A, offsets=offsets, cause=GapCause.LOST_WITH_PROCESS)
        self.expect("L4", "lapsed", 2)
        self.expect("L1", "lapsed")
        self.expect("L1", "lapsed and promised", 3)
        self.expect("L1", "lapsed and raised", 3)
        # One receiver left for good, before it had everything.
        self.session("left")
        self.got("left")
        run.attest("attached", "left", receiver="r2")
        run.receive("left", *local[:6], *self.site_b, receiver="r2")
        run.attest("unregistered", "left", receiver="r2", cause=Departure.LEFT, epoch=1)
        self.expect("L4", "left", 2)
        # A receiver had passed them before there was a subscription that matches them, or got the later one after.
        for name, epoch in (("passed", 1), ("passed with it", 2)):
            run.own(name, "a", 1)
            run.subscribe(name, "n == 7", NOTHING, generation="1/1")
            if epoch == 2:
                run.own(name, "b", 2, OwnedCause.RESTART)
            run.receive(name, local[7], epoch=epoch, proxy="ab"[epoch - 1])
            if epoch == 1:
                run.own(name, "b", 2, OwnedCause.RESTART)
            behind = {A: local[3].offset, B: -1}
            run.subscribe(name, WANTED, behind, subscription="s2", epoch=2, generation="2/1")
            run.receive(name, *self.site_b, epoch=2, proxy="b")
            run.drain(name, EVERYTHING, epoch=2)
        self.expect("L4", "passed", 3)
        self.expect("L1", "passed with it", 3)
        # An id of two coordinates is lost once, and only if both are.
        self.session("retried", "topic == 'retried'")
        self.expect("L1", "retried")
        self.session("retried and had", "topic == 'retried'")
        run.receive("retried and had", self.second_try)

    def names_used_again(self) -> None:
        run, local = self.run, self.site_a
        # A subscription was taken back and made again; its second life is owed something too.
        for session in ("made again", "made again and ended"):
            run.subscribe(session, WANTED, NOTHING, generation="1/1")
            end = {A: local[2].offset, B: 10_000}
            run.attest("unsubscribed", session, subscription="s1", subscription_generation="1/1", epoch=1, frontier=end)
            run.subscribe(session, WANTED, {A: local[3].offset, B: 10_000}, generation="1/2")
            run.drain(session, EVERYTHING)
        run.receive("made again", *self.site_b, *local[:3], *local[4:6], local[7])
        self.expect("L1", "made again")
        end = {A: local[5].offset, B: 10_000}
        run.attest(
            "unsubscribed",
            "made again and ended",
            subscription="s1",
            subscription_generation="1/2",
            epoch=1,
            frontier=end,
        )
        run.receive("made again and ended", *self.site_b, *local[1:])
        self.expect("L1", "made again and ended")
        self.expect("P4", "made again and ended", 2)
        # A session was deleted and created again: what the first one had not delivered went with it.
        run.subscribe("created again", WANTED, NOTHING, generation="1/1")
        run.receive("created again", *self.site_b, *local[:3])
        run.attest("deleted", "created again", epoch=1, frontier=EVERYTHING | {A: local[4].offset}, reason="asked for")
        self.expect("L4", "created again", 2)
        # Nobody lived to say that this one was.
        run.subscribe("created again unseen", WANTED, NOTHING, generation="1/1")
        run.receive("created again unseen", *self.site_b, *local[:3])
        self.expect("L4", "created again unseen", 5)
        for session in ("created again", "created again unseen"):
            run.subscribe(session, WANTED, {A: local[4].offset, B: 10_000}, epoch=AGAIN, generation=f"{AGAIN}/1")
            run.receive(session, local[5], local[7], epoch=AGAIN)
            run.drain(session, EVERYTHING, epoch=AGAIN)
            self.expect("L1", session)

    def repeated_facts(self) -> None:
        """A crash came before the facts; the next start of serving says again what was asked for and promised."""
        run, at = self.run, {"subscription": "s1", "subscription_generation": "1/1", "expression": WANTED}
        run.attest("restated", "restated", **at, epoch=2, frontier=NOTHING, ttl_s=60)
        gone = [self.site_a[3].offset]
        run.attest("removed", "restated", at_ms=60_000, epoch=2, origin=A, offsets=gone, policies=[TTL])
        run.drain("restated", EVERYTHING)
        self.got("restated", 3, 4)
        self.expect("L4", "restated")
        self.expect("L1", "restated")

    def removals(self) -> None:
        """A removal counts only if all that wanted it had stated a policy of a kind that it names."""
        run, gone = self.run, self.site_a[1].offset

        def removed(session: str, *by: RemovalPolicy, before: bool = False, **policies: dict[str, int]) -> None:
            for name in ("s1", "s2"):
                run.subscribe(
                    session,
                    WANTED if name == "s1" else "require(n)",
                    NOTHING,
                    subscription=name,
                    generation=f"1/{name[1]}",
                )
            taken = {"at_ms": 60_000, "epoch": 1, "origin": A, "offsets": [gone], "policies": list(by)}
            if before:
                run.attest("removed", session, **taken)
            for name, policy in policies.items():
                run.attest(
                    "policy", session, subscription=name, subscription_generation=f"1/{name[1]}", epoch=1, **policy
                )
            if not before:
                run.attest("removed", session, **taken)
            run.drain(session, EVERYTHING)
            self.got(session, 1)

        removed("wanted by another too", TTL, s1={"ttl_s": 60})
        self.expect("L1", "wanted by another too")
        removed("kept by its number", TTL, s1={"ttl_s": 60}, s2={"max_count": 3})
        self.expect("L1", "kept by its number")
        removed("not so many", COUNT, s1={"ttl_s": 60}, s2={"ttl_s": 3})
        self.expect("L1", "not so many")
        removed("stated too late", TTL, before=True, s1={"ttl_s": 60}, s2={"ttl_s": 60})
        self.expect("L1", "stated too late")
        removed("for both reasons", TTL, COUNT, s1={"ttl_s": 60}, s2={"max_count": 3})
        self.expect("L4", "for both reasons")
        removed("before its time", TTL, s1={"ttl_s": 60}, s2={"ttl_s": 66})
        self.expect("L1", "before its time")
        removed("though few", COUNT, s1={"max_count": 3}, s2={"max_count": 40})
        self.expect("L1", "though few")
        # The other one had ended before, and its name was used again after.
        removed("wanted by one", RemovalPolicy.TIME_TO_LIVE_BY_LOG, s1={"ttl_s": 60})
        end = {A: gone - 1, B: 10_000}
        run.attest(
            "unsubscribed", "wanted by one", subscription="s2", subscription_generation="1/2", epoch=1, frontier=end
        )
        run.subscribe("wanted by one", "require(n)", {A: gone, B: 10_000}, subscription="s2", generation="1/3")
        self.expect("L4", "wanted by one")
        # A policy of an earlier life is none of the next one.
        removed("stated in an earlier life", TTL, s1={"ttl_s": 60}, s2={"ttl_s": 60})
        end = {A: -1, B: 10_000}
        run.attest(
            "unsubscribed",
            "stated in an earlier life",
            subscription="s2",
            subscription_generation="1/2",
            epoch=1,
            frontier=end,
        )
        run.subscribe("stated in an earlier life", "require(n)", NOTHING, subscription="s2", generation="1/3")
        self.expect("L1", "stated in an earlier life")

    # ---- what came too often, wrongly, or in the wrong order

    def repeats(self) -> None:
        run, local = self.run, self.site_a
        self.session("again")
        self.got("again")
        run.receive("again", local[1], local[2])
        self.expect("D1", "again", 2)
        self.session("again elsewhere")
        self.got("again elsewhere")
        run.receive("again elsewhere", local[1], epoch=2, proxy="b")
        run.receive("again elsewhere", local[1], epoch=2, proxy="b")
        self.expect("D2", "again elsewhere")
        self.expect("D1", "again elsewhere")
        self.session("again by its other coordinate", "topic == 'retried'")
        run.receive("again by its other coordinate", self.first_try, self.second_try)
        self.expect("D1", "again by its other coordinate")

    def inventions(self) -> None:
        run, local = self.run, self.site_a
        self.session("phantom")
        self.got("phantom")
        run.receive("phantom", run.something_else("A"), run.something_else("B"))
        self.expect("P1", "phantom", 2)
        self.session("mismatch")
        self.got("mismatch")
        run.receive("mismatch", self.unwanted)
        self.expect("P3", "mismatch")
        run.subscribe("too early", WANTED, {A: local[4].offset, B: 10_000}, epoch=3)
        run.receive("too early", local[4], epoch=2)
        run.receive("too early", *local[5:], epoch=3)
        self.expect("P3", "too early")
        self.session("out of life")
        run.attest("unsubscribed", "out of life", subscription="s1", frontier={A: local[2].offset})
        run.receive("out of life", *local[:5])
        self.expect("P4", "out of life", 2)
        self.session("out of life at last")
        run.attest("unsubscribed", "out of life at last", subscription="s1", unknown_ends=[A, B])
        run.attest("unsubscribed", "out of life at last", subscription="s1", frontier={A: local[2].offset, B: -1})
        run.receive("out of life at last", *local[:5])
        self.expect("P4", "out of life at last", 2)
        self.ends()
        self.session("altered")
        self.got("altered", 0)
        run.receive("altered", local[0], digest=7, generation="second")
        self.expect("P5", "altered")
        run.forward("A", self.site_b[0])
        run.forward("A", self.site_b[1], b"\x80")
        run.forward("A", self.site_b[2], protection=Protection((Key("sha1-producer", "producer", b"k" * 20),)))
        run.forward("A", run.something_else("B"))
        self.expect("P5", "A", 2)
        self.expect("P1", "A")

    def ends(self) -> None:
        """The session was deleted, or its receiver left for good, and it was given more."""
        run, local = self.run, self.site_a
        cut = {A: local[5].offset, B: 10_000}
        run.own(self.session("given after its end"), "a", 1)
        run.attest("deleted", "given after its end", epoch=1, frontier=cut, reason="asked for")
        run.attest("released", "given after its end", proxy="a", epoch=1, frontier=cut)
        self.got("given after its end")
        self.expect("P4", "given after its end", 2)
        # An operator's proxy knows less than the owner.
        run.own(self.session("deleted elsewhere"), "a", 1)
        self.got("deleted elsewhere")
        run.fact("another", "deleted", session="deleted elsewhere", epoch=1, frontier=cut, reason="an operator")
        self.session("given after it left")
        self.got("given after it left")
        run.attest("unregistered", "given after it left", receiver="r", cause=Departure.LEFT, epoch=1, frontier=cut)
        self.expect("P4", "given after it left", 2)
        self.session("given at a later epoch")
        run.receive("given at a later epoch", *local[:6], *self.site_b)
        run.attest("unregistered", "given at a later epoch", receiver="r", cause=Departure.OPERATOR, epoch=1)
        run.receive("given at a later epoch", *local[6:], epoch=2)
        self.expect("P4", "given at a later epoch", 2)
        # The right to read was taken away; from one it was given back.
        for name in ("not allowed", "allowed again"):
            self.session(name)
            self.got(name)
            run.attest("detached", name, receiver="r", epoch=1, frontier=cut)
        run.attest("attached", "allowed again", receiver="r", epoch=1, frontier=cut)
        self.expect("P4", "not allowed", 2)

    def places(self) -> None:
        """Who is given a place is owed what lies above it; who was given another one, only what lies above that."""
        run, local = self.run, self.site_a
        self.session("joined late")
        self.got("joined late")
        here = {A: local[5].offset, B: 10_000}
        run.attest("registered", "joined late", receiver="r2", frontier=here)
        run.attest("attached", "joined late", receiver="r2")
        run.receive("joined late", local[7], receiver="r2")
        run.drain("joined late", EVERYTHING, "r2")
        self.expect("L1", "joined late")
        self.session("came back")
        self.got("came back")
        run.receive("came back", *local[:2], receiver="r2")
        run.attest("unregistered", "came back", receiver="r2", cause=Departure.EXPIRED, epoch=1)
        run.attest("registered", "came back", receiver="r2", frontier=here, epoch=1)
        run.attest("attached", "came back", receiver="r2", epoch=1)
        run.receive("came back", *local[6:], receiver="r2")
        run.drain("came back", EVERYTHING, "r2")

    def keys(self) -> None:
        """What comes without the key is nobody's who asks for one; what comes with it is owed."""
        run = self.run
        one, other = (Key("sha256-producer", "producer", secret) for secret in (b"1", b"2"))
        two = (Key("sha1-dual", "producer", b"1"), Key("sha1-dual", "consumer", b"1"))
        sent = {
            name: run.publish("A", topic="k", protection=protection)
            for name, protection in {
                "open": OPEN,
                "one": Protection((one,), False),
                "other": Protection((other,), True),
                "half": Protection(two[:1], False),
                "dual": Protection(two, False),
            }.items()
        }

        def keyed(session: str, protection: Protection, *given: str) -> None:
            run.subscribe(session, "topic == 'k'", NOTHING, protection=protection)
            run.drain(session, EVERYTHING)
            run.receive(session, *(sent[name] for name in given))

        keyed("by one key", Protection((one,), False), "one")
        keyed("by both sides", Protection(two, False), "dual")
        keyed("by any", Protection((one, *two), True), "open", "one", "other", "dual")
        keyed("without a key", OPEN, "open", "other")
        keyed("lost by key", Protection((one,), False))
        self.expect("L1", "lost by key")
        keyed("overheard", Protection((one,), False), "one", "other")
        self.expect("P3", "overheard")
        keyed("half met", Protection(two, False), "half", "dual")
        self.expect("P3", "half met")

    def disorder(self) -> None:
        run, local = self.run, self.site_a
        self.session("disorder")
        run.receive("disorder", local[0], local[2], local[1], *local[3:], *self.site_b)
        self.expect("O1", "disorder")
        self.session("disorder over a handover")
        run.receive("disorder over a handover", local[0], local[2])
        run.receive("disorder over a handover", local[1], *local[3:], *self.site_b, epoch=2, proxy="b")
        self.expect("O3", "disorder over a handover")
        for order in ("fifo", "priority", "deadline"):
            self.session(f"by {order}")
            run.receive(f"by {order}", local[2], *local[:2], *local[3:], *self.site_b, order=order)
        self.expect("O1", "by fifo")
        # A retry came behind what was sent later: right for who came in between, wrong for who was owed the first copy.
        first, later, again = (run.publish("A", "v", n, topic="v") for n in (1, 2, 1))
        for name, above in (("came in between", first.offset), ("owed the first copy", -1)):
            self.session(name, "topic == 'v'", {A: above})
            run.receive(name, later, again)
        self.expect("O2", "came in between")
        self.expect("O4", "owed the first copy")
        for name in ("first copy removed", "told of the first copy", "removed without a policy"):
            self.session(name, "topic == 'v'", {A: -1})
            run.receive(name, later, again)
        run.attest("policy", "first copy removed", subscription="s1", ttl_s=60)
        for name in ("first copy removed", "removed without a policy"):
            run.attest("removed", name, at_ms=60_000, origin=A, offsets=[first.offset], policies=[TTL])
        run.attest("gap", "told of the first copy", origin=A, offsets=[first.offset] * 2, cause=GapCause.RETENTION)
        self.expect("O2", "first copy removed")
        self.expect("O2", "told of the first copy")
        self.expect("G1", "told of the first copy")
        self.expect("O4", "removed without a policy")
        self.session("stale")
        run.receive("stale", *local[:2])
        run.receive("stale", local[2], epoch=2, proxy="b")
        run.receive("stale", local[3])
        run.receive("stale", *local[4:], *self.site_b, epoch=2, proxy="b")
        self.expect("H1", "stale")
        self.session("split")
        self.got("split")
        run.own("split", "a", 1)
        run.own("split", "a", 1)
        run.own("split", "b", 2)
        run.own("split", "c", 2)
        self.expect("H2", "split")

    def owners(self) -> None:
        run, local = self.run, self.site_a
        run.own(self.session("of a stranger"), "a", 1)
        run.receive("of a stranger", *local[:4])
        run.receive("of a stranger", *local[4:], *self.site_b, proxy="b")
        self.expect("H1", "of a stranger", 2)
        run.owned.add((self.session("of an epoch that nobody took"), 1))
        run.receive("of an epoch that nobody took", *local, *self.site_b)
        self.expect("H1", "of an epoch that nobody took", 2)
        # Its owner was behind its cut; another one gave the rest again, which the receiver dropped.
        run.own(self.session("beyond the cut"), "a", 1)
        self.got("beyond the cut")
        cut = {A: local[5].offset, B: 10_000}
        run.attest("released", "beyond the cut", proxy="a", epoch=1, frontier=cut)
        run.own("beyond the cut", "b", 2, OwnedCause.HANDOVER)
        self.expect("H1", "beyond the cut", 2)
        # It took the session back at the same epoch: then its cut holds no more.
        run.own(self.session("served again"), "a", 1)
        run.attest("released", "served again", proxy="a", epoch=1, frontier=cut)
        run.own("served again", "a", 1, OwnedCause.RESTART)
        self.got("served again")
        # It lied about its cut, and the next owner tells where it began itself.
        run.own(self.session("beyond the next owner's beginning"), "a", 1)
        self.got("beyond the next owner's beginning")
        about = {"proxy": "b", "epoch": 2, "cause": OwnedCause.HANDOVER, "frontier": cut}
        run.attest("owned", "beyond the next owner's beginning", **about)
        self.expect("H1", "beyond the next owner's beginning", 2)
        # The owner between the two was killed before its journal had anything of that; it began earlier.
        run.own(self.session("owner between not on record"), "a", 1)
        self.got("owner between not on record")
        run.attest("owned", "owner between not on record", **(about | {"epoch": 3}))
        # Two incarnations of one proxy.
        run.own(self.session("split by one"), "a", 1)
        self.got("split by one")
        run.fact("proxy/a/other", "owned", session="split by one", proxy="a", epoch=1, cause=OwnedCause.RESTART)
        self.expect("H2", "split by one")
        for session, end in (("stalled", None), ("handed over", "committed")):
            run.own(self.session(session), "a", 1)
            self.got(session)
            for phase in ("copying", "frozen", *([end] if end else [])):
                run.attest("handover", session, proxy="a", epoch=1, transfer=f"t {session}", role="source", phase=phase)
        self.expect("H3", "stalled")

    # ---- what the evidence itself lacks

    def damage(self) -> None:
        run = self.run
        for n in range(6):
            run.publish("C", topic="x", n=n)
        self.session("over a hole", WANTED, {C: -1})
        run.receive("over a hole", *(Coordinate(Origin(C), n) for n in range(6)))
        del run.logs["C"][2], run.logs["C"][3]
        self.expect("A1", "C")
        run.publish("D", topic="x")
        self.expect("A4", "D")
        self.session("far", WANTED, {E: -1, D: -1})
        run.receive("far", Coordinate(Origin(E), 4), Coordinate(Origin(D), 40))
        self.expect("A4", "E")
        self.expect("L3", "far")
        # Somebody has got record 40 of a log with one.
        self.expect("A1", "D")
        # Nobody can say what these were.
        self.expect("A5", "over a hole", 2)
        self.expect("A5", "far", 2)
        run.append("B", b"\xc1")
        run.append("B", Published(producer="p", incarnation=Incarnation("i"), sequence=99, at_ms=0, body=b"\xc1"))
        self.expect("A2", "B", 2)
        # A record that cannot be read may be what was delivered, forwarded, or acknowledged.
        self.session("over what cannot be read")
        self.got("over what cannot be read")
        unreadable = Coordinate(Origin(B), run.append("B", b"\xc1"))
        run.receive("over what cannot be read", unreadable)
        run.forward("A", unreadable)
        run.fact("asked twice", "acknowledged", origin=B, offsets=[unreadable.offset])
        run.fact("asked twice", "acknowledged", origin=C, offsets=[0, 1, 2])
        run.fact("asked twice", "acknowledged", origin=D, offsets=[0, 50])
        self.expect("A5", "over what cannot be read")
        self.expect("A2", "B")
        self.expect("L3", "asked twice", 3)
        # A life of a proxy that took part, and wrote nothing that is here.
        run.append("A", InterestRegistered(ProxyId("gone"), Incarnation("life"), SessionId("s"), ()))
        run.append("A", InterestsExpired(ProxyId("gone"), Incarnation("life")))
        self.expect("A1", "proxy/gone/life")

    def bad_facts(self) -> None:
        run, journal = self.run, self.run.journals
        first = run.fact("repeating", "opened")
        run.fact("repeating", "opened")
        relayed_later = Fact(writer="repeating", number=1, at_ms=5, kind=FactKind.OPENED)
        journal["repeating"] += [
            first,
            relayed_later,
            Fact(writer="repeating", number=2, at_ms=5, kind=FactKind.OWNED),
            Fact(writer="repeating", number=3, at_ms=0, kind=FactKind.CLOSED),
        ]
        self.expect("D4", "repeating", 2)
        self.expect("A2", "repeating")
        journal["unclosed"].append(Fact(writer="unclosed", number=1, at_ms=0, kind=FactKind.OPENED))
        self.expect("A1", "unclosed")
        text = encode_fact(Fact(writer="half", number=1, at_ms=0, kind=FactKind.RECEIVED))
        journal["half"] += [text[: len(text) // 2], b"[]", b'{"writer":"half"}', b""]
        self.expect("A2", "", 3)
        self.session("uneven")
        self.got("uneven")
        run.fact("uneven/r", "received", session="uneven", receiver="r", proxy="a", epoch=1, origin=A, digests=[1])
        self.expect("A2", "uneven")
        self.session("without digests")
        self.got("without digests")
        about = {"session": "without digests", "receiver": "r", "proxy": "a", "epoch": 1}
        run.fact("without digests/r", "received", **about, origin=A, offsets=[0])
        self.expect("A2", "without digests")
        self.expect("D1", "without digests")
        run.attest("gap", "of a new cause", origin=A, offsets=[0, 0], cause="flood")
        self.expect("A2", "of a new cause")
        self.expect("G1", "of a new cause")
        run.attest("removed", "by a new policy", origin=A, offsets=[0], policies=["whim"])
        self.expect("A2", "by a new policy")
        run.attest("owned", "without a cause", proxy="a", epoch=1)
        self.expect("A2", "without a cause")
        journal["strange"] += [
            run_line("strange", 1, "opened"),
            b'{"writer":"strange","number":2,"at_ms":0,"kind":"sung","session":"any"}',
            run_line("strange", 3, "closed"),
        ]
        self.expect("A2", "any")
        # Its end is missing: it appended a marker to a log after all that it says.
        run.append("A", Closed("proxy/early/life", 7, {}))
        run.fact("proxy/early/life", "opened")
        run.fact("proxy/early/life", "marked")
        self.expect("A1", "proxy/early/life")
        run.subscribe("unreadable", "topic ==", NOTHING)
        run.receive("unreadable", self.site_a[0])
        self.expect("A2", "unreadable")
        run.subscribe("undecided", WANTED, NOTHING)
        run.attest("subscribed", "undecided", subscription="s1", expression="topic == 'y'")
        self.expect("A2", "undecided")
        run.attest("effective", "unasked", subscription="s1", frontier=NOTHING)
        self.expect("A2", "unasked")

    def acknowledgements(self) -> None:
        there = [coordinate.offset for coordinate in self.site_a]
        there += [self.run.something_else("A").offset for _ in range(2)]
        self.run.fact("proxies", "acknowledged", origin=A, offsets=there)
        self.expect("L1", "proxies", 2)

    def in_order(self) -> None:
        for n in range(3):
            self.got(self.session(f"in order {n}"))


def run_line(writer: str, number: int, kind: str) -> bytes:
    return encode_fact(Fact(writer=writer, number=number, at_ms=0, kind=FactKind(kind)))


EXCUSABLE = {"L1": "L3", "L2": "L3", "P3": "A5", "P4": "A5", "O1": "A5", "O3": "A5", "O4": "A5"}
"""What these may come to where evidence is missing."""
UNOWNED = ("of a stranger", "of an epoch that nobody took", "beyond the cut", "beyond the next owner's beginning")
"""Sessions with deliveries that a missing fact of ownership could excuse."""


def injected() -> AnomalyRun:
    """Every anomaly, in evidence that is complete, but for what one receiver wrote."""
    planting = AnomalyRun()
    inject_anomalies(planting)
    planting.run.end()
    return planting


def inject_anomalies(planting: AnomalyRun) -> None:
    planting.losses()
    planting.losses_in_handovers()
    planting.excuses()
    planting.removals()
    planting.names_used_again()
    planting.repeated_facts()
    planting.repeats()
    planting.inventions()
    planting.keys()
    planting.places()
    planting.disorder()
    planting.owners()
    planting.acknowledgements()
    planting.in_order()


def damaged() -> AnomalyRun:
    """The same anomalies, in evidence that has holes of every kind."""
    planting = AnomalyRun()
    inject_anomalies(planting)
    expected, planting.expected = planting.expected, Counter()
    for (code, subject), count in expected.items():
        # What was acknowledged and is in no log, nothing but that log could excuse.
        excused = "A5" if code == "H1" and subject in UNOWNED else EXCUSABLE.get(code, code)
        planting.expect(code if subject == "proxies" else excused, subject, count)
    planting.damage()
    planting.bad_facts()
    # Written last, and so that nothing is written after them.
    raw = {name: planting.run.journals.pop(name) for name in ("repeating", "unclosed", "half", "strange")}
    planting.run.end(exclude=("D",))
    planting.run.journals.update(raw)
    return planting
