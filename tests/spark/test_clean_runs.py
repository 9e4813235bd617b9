"""What is in order is called so: no class of anomaly may cry out at these."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark.audit import judge
from spark.source import locate
from tests.spark.runs import Run, origin
from waypost.identity import Incarnation, ProxyId
from waypost.notification import Int64
from waypost.records import Dropped

A, B = origin("A"), origin("B")
NOTHING = {A: -1, B: -1}
EVERYTHING = {A: 10_000, B: 10_000}


def test_runs_without_an_anomaly_are_ok(spark: SparkSession, tmp_path: Path) -> None:
    run = Run()
    mine = [run.publish("A", topic="x", n=n) for n in range(6)]
    other = [run.publish("A", "q", topic="x", n=n) for n in range(3)]
    unwanted = [run.publish("A", topic="y", n=n) for n in range(3)]
    far = [run.publish("B", topic="x", n=Int64(n)) for n in range(4)]
    retried = run.publish("A", "w", 1, topic="x", n=0)
    behind = run.publish("A", "w", 2, topic="x", n=0)
    again = run.publish("A", "w", 1, topic="x", n=0)
    for coordinate in far:
        run.forward("A", coordinate)
    everything = [*mine, *other, retried, behind, *far]

    # The plainest one.
    run.subscribe("plain", "topic == 'x'", NOTHING)
    run.receive("plain", *everything)
    # Producers interleaved in another order than in the log, and origins too.
    run.subscribe("reordered", "topic == 'x'", NOTHING)
    run.receive("reordered", *far, *other, retried, behind, *mine)
    # The receiver's library was restarted: a new life, a new writer, other producers' things first.
    run.subscribe("restarted", "topic == 'x'", NOTHING)
    run.receive("restarted", *far, *mine[:3])
    for coordinate in [*mine[3:], *other, retried, behind]:
        run.receive("restarted", coordinate, epoch=2, life="second")
    # The session was handed over, and promised again by its new owner, from further on.
    run.own("moved", "a", 1)
    run.subscribe("moved", "topic == 'x'", NOTHING)
    run.receive("moved", *mine[:2])
    run.attest("released", "moved", proxy="a", epoch=1, frontier={A: mine[1].offset})
    run.own("moved", "b", 2, "handover")
    run.attest("effective", "moved", subscription="s1", epoch=2, frontier={A: mine[1].offset, B: -1})
    run.receive("moved", *everything[2:], epoch=2, proxy="b")
    # Delivered by the retried copy alone, where the first one lay below the promise.
    run.subscribe("late", "topic == 'x'", {A: retried.offset, B: 10_000})
    run.receive("late", behind, again)
    # Delivered below the promise, which only says from where on nothing is missed.
    run.subscribe("early", "topic == 'x'", {A: behind.offset, B: 10_000})
    run.receive("early", *mine[2:], again)
    # Two overlapping subscriptions are one delivery; one of them ends, and may end twice.
    run.subscribe("double", "topic == 'x'", NOTHING)
    run.subscribe("double", "require(n)", NOTHING, "s2")
    for upto in (mine[2].offset, mine[3].offset):
        run.attest("unsubscribed", "double", subscription="s2", frontier={A: upto})
    run.receive("double", *everything)
    # Two receivers, of whom the second came later and said from where on.
    run.subscribe("shared", "topic == 'x'", NOTHING)
    run.attest("attached", "shared", receiver="r")
    run.attest("attached", "shared", receiver="r2", frontier={A: mine[5].offset, B: far[1].offset})
    run.receive("shared", *everything)
    run.receive("shared", *other, retried, behind, *far[2:], receiver="r2")
    # Nothing matches, and a subscription without a promise is owed nothing.
    run.subscribe("quiet", "topic == 'z'", NOTHING)
    run.attest("subscribed", "unpromised", subscription="s1", expression="topic == 'x'")
    # Ended before anything came: what lies behind the end is not owed.
    run.subscribe("ended", "topic == 'x'", NOTHING)
    run.attest("unsubscribed", "ended", subscription="s1", frontier={A: mine[0].offset})
    run.receive("ended", mine[0])
    sessions = ["plain", "reordered", "restarted", "moved", "late", "early", "double", "shared", "ended"]
    for session in sessions:
        run.drain(session, EVERYTHING)
    run.drain("shared", EVERYTHING, "r2")
    run.fact("proxies", "acknowledged", origin=A, offsets=[each.offset for each in (*mine, *other, *unwanted)])
    # One life was killed, and who killed it says that its journal is whole.
    run.fact("killed", "opened")
    run.fact("proxies", "ended", proxy="killed")
    # Another lost its lease, which its site log says.
    run.fact("proxy/a/first life", "opened")
    run.append("A", Dropped(ProxyId("a"), Incarnation("first life")))
    # A receiver's library says nothing but what it received, and so never says that it closed.
    run.end(but=("killed", "proxy/a/first life", "restarted/rsecond"))

    verdict = judge(spark, locate(str(run.write(tmp_path))))

    assert verdict.examples == []
    assert verdict.verdict == "ok"
    assert verdict.counts == {}
    assert verdict.published == 6 + 3 + 3 + 4 + 3
    whole = len(everything)
    assert verdict.owed == 4 * whole + 2 + 1 + whole + whole + 7 + 1
    assert (verdict.lost, verdict.duplicated) == (0, 0)
