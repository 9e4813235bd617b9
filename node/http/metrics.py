"""The metrics of a node at /metrics, for Prometheus: one list, with the meaning and the labels of each.

Nothing is counted here, and nothing on the way of a notification knows that there are metrics. The engine keeps plain
numbers (proxy/core/counters.py); all the rest is read from the node at each scrape. Labels have few values: never a
session, a client or a transfer. `python -m node.http.metrics` prints the list,
for docs/operating.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from handover.messages import Trigger
from handover.source import SourceState
from handover.target import TargetState
from node.health.dependency_health import CHANGELOG_OF, LINK_FROM, PROXY, SITE, STALLED, Dependency
from node.health.self_check import ADVERTISED, LONE_SITE, NEIGHBOUR, SHARED
from node.peers.peers import LOSSES
from node.shell.metrics_snapshot import NodeSnapshot
from proxy.clients.authorization import REASONS
from proxy.core.counters import Handover, Histogram
from proxy.core.transfer_record import FINAL_COPY, PRE_COPY, Cause
from waypost.facts import OwnedCause, TransferEnd

ANOTHER_SITE = "another site"
A_NEIGHBOUR, A_PROXY, A_LINK, PROGRESS = "neighbour", "proxy", "link", "progress"
DEPENDENCIES = (
    Dependency.REGISTRY,
    Dependency.LOG,
    Dependency.APPENDS,
    Dependency.CHANGELOG,
    Dependency.JOURNAL,
    Dependency.STORE,
    ANOTHER_SITE,
    A_NEIGHBOUR,
    A_PROXY,
    A_LINK,
    ADVERTISED,
    SHARED,
    LONE_SITE,
    PROGRESS,
)
"""Values of the label `part`: the dependencies of a node, without the names of sites. All others are `other`."""
SECONDS = 1e-3
"""The scale of a metric that is counted in milliseconds."""

Number = float | Histogram
Read = Number | Mapping[Any, Number]
"""A metric without labels; with one, by its value; with several, by the tuple of their values."""


class Described(NamedTuple):
    """One metric.

    Args:
        kind: "counter", "gauge" or "histogram".
        name: as it is exposed.
        meaning: for the help text, and docs/operating.md.
        read: returns the present value.
        labels: the names of its labels.
        scale: by which the value is multiplied, so that it has the unit of the name.
    """

    kind: str
    name: str
    meaning: str
    read: Callable[[NodeSnapshot], Read]
    labels: tuple[str, ...] = ()
    scale: float = 1


counter, gauge, histogram = (partial(Described, kind) for kind in ("counter", "gauge", "histogram"))


# ---------------------------------------------------------------- looking


def _dependency_label(name: str) -> str:
    if name.startswith((SITE, CHANGELOG_OF)):
        return ANOTHER_SITE
    if name.startswith(NEIGHBOUR):
        return A_NEIGHBOUR
    if name.startswith(PROXY):
        return A_PROXY
    if name.startswith(LINK_FROM):
        return A_LINK
    if name.startswith(STALLED):
        return PROGRESS
    return name if name in DEPENDENCIES else "other"


def _missing(snapshot: NodeSnapshot) -> Read:
    return dict.fromkeys((*DEPENDENCIES, "other"), 0) | {
        _dependency_label(dependency): 1 for dependency in snapshot.node.health.now
    }


def _outages(snapshot: NodeSnapshot) -> Read:
    outages = Counter(dict.fromkeys((*DEPENDENCIES, "other"), 0))
    for dependency, count in snapshot.node.health.outages.items():
        outages[_dependency_label(dependency)] += count
    return outages


def _lease_left_ms(snapshot: NodeSnapshot) -> Read:
    engine = snapshot.engine
    if engine.env.lease.fence_at_ms is None:
        return 0
    return max(0, engine.env.lease.fence_at_ms + engine.env.settings.lease_margin_ms - snapshot.node.clock.now_ms())


def _silences(snapshot: NodeSnapshot) -> Read:
    return {pulling.neighbour: pulling.silent_ms for pulling in snapshot.pulling if pulling.silent_ms is not None}


def _filters(snapshot: NodeSnapshot) -> Read:
    state = snapshot.engine.state
    return {
        (pulling.neighbour, which): number
        for pulling in snapshot.pulling
        for which, number in (
            ("requested", len(state.requested(pulling.neighbour))),
            ("covered", state.covered(pulling.neighbour)),
            ("installed", len(state.filters_of(pulling.neighbour).filters)),
        )
    }


def _origins(snapshot: NodeSnapshot) -> Read:
    over = Counter(snapshot.engine.state.upstream.values())
    return {pulling.neighbour: over[pulling.neighbour] for pulling in snapshot.pulling}


def _lags(snapshot: NodeSnapshot) -> Read:
    return {(sending.neighbour, origin): lag for sending in snapshot.sending for origin, lag in sending.lags.items()}


def _handovers(snapshot: NodeSnapshot) -> Read:
    usual = [
        Handover(role, trigger, TransferEnd.COMMITTED, Cause.NONE)
        for role in ("source", "target")
        for trigger in Trigger
    ]
    return dict.fromkeys(usual, 0) | snapshot.counters.handovers


def _running(snapshot: NodeSnapshot) -> Read:
    transfers = snapshot.engine.transfers
    found = dict.fromkeys([("source", source_state.name.lower()) for source_state in SourceState], 0)
    found |= dict.fromkeys([("target", target_state.name.lower()) for target_state in TargetState], 0)
    for side in (transfers.sources, transfers.targets):
        for record in side.running.values():
            found[side.role, record.machine.state.name.lower()] += 1
    return {phase: count for phase, count in found.items() if phase[1] != "ended"}


def _copied(counts: Counter[tuple[str, str]]) -> Read:
    return {(role, part): counts[role, part] for role in ("source", "target") for part in (PRE_COPY, FINAL_COPY)}


def _rate(snapshot: NodeSnapshot) -> Read:
    row = snapshot.engine.session_moves.drain_row
    return 0 if row is None or row.paused else row.rate


# ---------------------------------------------------------------- the list

STARTS = tuple(OwnedCause)

METRICS = (
    gauge(
        "waypost_proxy",
        "Always 1; the labels say which proxy this is.",
        lambda snapshot: {(snapshot.node.proxy, snapshot.node.site, version("waypost")): 1},
        labels=("proxy", "site", "version"),
    ),
    gauge(
        "waypost_ready",
        "As /readyz: 1: the proxy takes new clients; `why_not` at /v1/status says why it does not.",
        lambda snapshot: not snapshot.node.why_not_ready,
    ),
    gauge(
        "waypost_certificate_end_seconds",
        "Unix time at which the certificate on the port ends; 0: there is none, or it was not looked at yet.",
        lambda snapshot: (snapshot.node.certificate.expires_ms or 0) / 1_000 if snapshot.node.certificate else 0,
    ),
    gauge("waypost_part_missing", "1: the part does not answer at the moment.", _missing, labels=("part",)),
    counter("waypost_part_outages_total", "How often the part began not to answer.", _outages, labels=("part",)),
    histogram(
        "waypost_store_write_seconds",
        "Time of one write of the proxy's own store: everything since the write before, in one transaction.",
        lambda snapshot: snapshot.node.effect_runner.store_writes,
        scale=SECONDS,
    ),
    counter(
        "waypost_store_failures_total",
        "Writes that the disk did not take; what they held is written again with the next one.",
        lambda snapshot: snapshot.node.effect_runner.store_failures,
    ),
    counter(
        "waypost_peer_messages_lost_total",
        "Messages that did not go out to another proxy: its queue was full; no proxy of that name has a lease; "
        "the connection could not be made, or broke. What matters is said again.",
        lambda snapshot: dict.fromkeys(LOSSES, 0) | snapshot.node.peers.lost,
        labels=("why",),
    ),
    counter(
        "waypost_peer_messages_routed_total",
        "Messages for proxies that are not reached directly, which were sent to a site on the way: those of this "
        "proxy, and those of others that passed here.",
        lambda snapshot: snapshot.node.peers.routed,
    ),
    gauge(
        "waypost_lease_left_seconds",
        "Until the lease of this proxy can end; 0: it has none, and serves nothing.",
        _lease_left_ms,
        scale=SECONDS,
    ),
    gauge(
        "waypost_proxies_alive",
        "Proxies of the federation whose leases hold, as this one knows.",
        lambda snapshot: len(snapshot.engine.env.cluster.proxies),
    ),
    # serving
    gauge(
        "waypost_sessions",
        "Sessions that are here: serving, frozen (handed over just now), dormant (waits for an epoch), shadow and "
        "staged (coming here), orphan (to be settled by the registry).",
        lambda snapshot: snapshot.sessions.roles,
        labels=("role",),
    ),
    gauge(
        "waypost_receivers",
        "Receivers of these sessions: attached, or away.",
        lambda snapshot: {"attached": snapshot.sessions.attached, "away": snapshot.sessions.away},
        labels=("state",),
    ),
    gauge(
        "waypost_expressions",
        "What these sessions subscribe to: distinct expressions, and alternatives of them that no key finds "
        "(unindexed), so that each is evaluated for every notification.",
        lambda snapshot: {
            "distinct": len(snapshot.engine.sessions.matcher),
            "unindexed": snapshot.engine.sessions.matcher.unindexed,
        },
        labels=("what",),
    ),
    gauge(
        "waypost_clients",
        "Connections of clients to this proxy, producers too.",
        lambda snapshot: len(snapshot.engine.dispatcher.connections) - len(snapshot.relays.far),
    ),
    gauge(
        "waypost_relays",
        "Relayed receivers: near, attached here to a session at another proxy; far, the other way round.",
        lambda snapshot: {"near": len(snapshot.relays.near), "far": len(snapshot.relays.far)},
        labels=("end",),
    ),
    gauge(
        "waypost_stored_notifications",
        "Notifications stored for sessions that are here, once for each session: from the oldest that is needed to the "
        "newest. What policy has passed is counted as long as it lies between others, or until the next sweep.",
        lambda snapshot: snapshot.sessions.stored,
    ),
    gauge(
        "waypost_gates_closed",
        "Origins of sessions that are here that are being caught up; live notifications of them wait.",
        lambda snapshot: snapshot.sessions.gates,
    ),
    counter(
        "waypost_published_total", "Notifications taken from producers.", lambda snapshot: snapshot.counters.published
    ),
    counter(
        "waypost_appended_total",
        "Of these, in the site log, and acknowledged to the producer.",
        lambda snapshot: snapshot.counters.appended,
    ),
    counter(
        "waypost_append_failures_total",
        "Of these, refused because the log did not answer; the producer sends them again.",
        lambda snapshot: snapshot.counters.failed,
    ),
    counter(
        "waypost_damaged_total",
        "What was not as it was written when it was read: records of the site's log; the store as a whole; a session "
        "that was wanted, and of which no checkpoint can be read.",
        lambda snapshot: dict.fromkeys(("log", "session", "store"), 0) | snapshot.counters.damaged,
        labels=("part",),
    ),
    counter(
        "waypost_stale_answers_total",
        "Answers that decide who owns a session, of registry, changelogs, store and handovers, and came too late: what "
        "was asked for had changed.",
        lambda snapshot: snapshot.counters.stale_replies,
        labels=("why",),
    ),
    counter(
        "waypost_altered_total",
        "Frames of producers that were altered on their way, and are sent again.",
        lambda snapshot: snapshot.counters.altered,
    ),
    counter(
        "waypost_delivered_total",
        "Notifications sent to receivers, once for each receiver, repeats after a reconnect included.",
        lambda snapshot: snapshot.counters.delivery_sizes.total,
    ),
    counter(
        "waypost_acknowledged_total",
        "Notifications that receivers acknowledged.",
        lambda snapshot: snapshot.counters.acknowledged,
    ),
    histogram(
        "waypost_append_size",
        "Notifications appended to the log together.",
        lambda snapshot: snapshot.counters.publish_sizes,
    ),
    histogram(
        "waypost_delivery_size",
        "Notifications in one delivery to one receiver.",
        lambda snapshot: snapshot.counters.delivery_sizes,
    ),
    gauge(
        "waypost_queue_length",
        "How much waits in each queue; of many of a name, in the fullest; one that nobody has now is not there. "
        "`client bytes` are bytes, `log`, `journal` and `copy` are batches, `moves` are sessions, the others are "
        "single messages or notifications.",
        lambda snapshot: {queue: length for queue, (length, _) in snapshot.queues.items()},
        labels=("queue",),
    ),
    gauge(
        "waypost_queue_bound",
        "The bound of the same queue, in the same unit; waypost/limits.py says what happens there.",
        lambda snapshot: {queue: bound for queue, (_, bound) in snapshot.queues.items()},
        labels=("queue",),
    ),
    counter(
        "waypost_starts_total",
        "Sessions that began to be served here: create, handover, thaw, restart, failover.",
        lambda snapshot: dict.fromkeys(STARTS, 0) | snapshot.counters.served,
        labels=("how",),
    ),
    counter(
        "waypost_quarrels_damped_total",
        "How often a receiver's name was in use in two places, and one of them had to wait.",
        lambda snapshot: snapshot.engine.sessions.takeover_backoff.damped,
    ),
    counter(
        "waypost_refusals_total",
        "What other proxies said wrong, by the name of what is wrong with it; it changed nothing.",
        lambda snapshot: snapshot.engine.output.refused.counts,
        labels=("what",),
    ),
    counter(
        "waypost_client_refusals_total",
        "What clients said and was refused, by the name of what is wrong with it; it was answered, and they go on.",
        lambda snapshot: snapshot.counters.refused,
        labels=("what",),
    ),
    counter(
        "waypost_forbidden_total",
        "What clients asked of sessions and were not allowed: unproven, the password is not right; right missing; "
        "too often, told to try again later.",
        lambda snapshot: dict.fromkeys(REASONS, 0) | snapshot.counters.forbidden,
        labels=("why",),
    ),
    # the site log and the links
    gauge(
        "waypost_log_position",
        "Offset of the next record of the site log that this proxy reads.",
        lambda snapshot: snapshot.engine.state.position,
    ),
    gauge(
        "waypost_log_lag_records",
        "Records of the site log that this proxy has not read, when it looked last; it looks every 2 s.",
        lambda snapshot: max(0, snapshot.node.log_end - snapshot.engine.state.position),
    ),
    gauge(
        "waypost_frontier_offset",
        "Up to which offset of the origin everything that is wanted here has come.",
        lambda snapshot: snapshot.engine.state.frontier,
        labels=("origin",),
    ),
    gauge(
        "waypost_tree_epoch",
        "Of the dispatching tree that this site's log has entered; the same at all sites. One that grows again and "
        "again tells of a link that comes and goes.",
        lambda snapshot: snapshot.engine.state.tree.epoch,
    ),
    gauge(
        "waypost_link_leading",
        "1: this proxy leads the link from that site to ours. Of a site's proxies one does.",
        lambda snapshot: {pulling.neighbour: pulling.leads for pulling in snapshot.pulling},
        labels=("neighbour",),
    ),
    gauge(
        "waypost_link_silence_seconds",
        "At the leader: since it last heard of the neighbour. At 3 s it opens the link again.",
        _silences,
        labels=("neighbour",),
        scale=SECONDS,
    ),
    gauge(
        "waypost_link_in_tree",
        "1: everything goes over the link to that site; 0: it stands by.",
        lambda snapshot: {pulling.neighbour: not pulling.stands_by for pulling in snapshot.pulling},
        labels=("neighbour",),
    ),
    gauge(
        "waypost_link_filters",
        "Filters of the link: those that we request of that site, those that we need and that these cover, and those "
        "that it requests of us (requested, covered, installed).",
        _filters,
        labels=("neighbour", "which"),
    ),
    gauge(
        "waypost_link_origins",
        "Origins whose notifications come over the link.",
        _origins,
        labels=("neighbour",),
    ),
    gauge(
        "waypost_link_behind_records",
        "At the sending proxy: records of our log that were not read for the neighbour yet.",
        lambda snapshot: {sending.neighbour: sending.behind for sending in snapshot.sending},
        labels=("neighbour",),
    ),
    gauge(
        "waypost_link_unacknowledged_records",
        "At the sending proxy: records sent that the neighbour's log does not have yet.",
        lambda snapshot: {sending.neighbour: sending.under_way for sending in snapshot.sending},
        labels=("neighbour",),
    ),
    gauge(
        "waypost_link_lag_offsets",
        "At the sending proxy: offsets of the origin of which the neighbour was not told yet, wanted there or not.",
        _lags,
        labels=("neighbour", "origin"),
    ),
    # handovers
    counter(
        "waypost_handovers_total",
        "Handovers that ended, by the role of this proxy, by what they were for (attach, follow, drain, rebalance), "
        "by what became of them (committed, aborted, thawed, relayed, unsettled), and why they were not "
        "committed.",
        _handovers,
        labels=("role", "trigger", "outcome", "cause"),
    ),
    gauge("waypost_handovers_running", "Handovers that run now, by their phase.", _running, labels=("role", "phase")),
    histogram(
        "waypost_handover_phase_seconds",
        "Time that handovers which have ended spent in the phase.",
        lambda snapshot: snapshot.counters.phases,
        labels=("role", "phase"),
        scale=SECONDS,
    ),
    histogram(
        "waypost_handover_pause_seconds",
        "Time that a session stood still at its source: from the freeze until the source knew who serves it.",
        lambda snapshot: snapshot.counters.pauses,
        labels=("outcome",),
        scale=SECONDS,
    ),
    counter(
        "waypost_handover_copied_notifications_total",
        "Notifications copied, repeats included: ahead, while the session is served; the rest, after the freeze.",
        lambda snapshot: _copied(snapshot.counters.copied),
        labels=("role", "part"),
    ),
    counter(
        "waypost_handover_copied_bytes_total",
        "Bytes of the same.",
        lambda snapshot: _copied(snapshot.counters.copied_bytes),
        labels=("role", "part"),
    ),
    # drains
    gauge(
        "waypost_drain_left_sessions",
        "Sessions that are still to leave this proxy; 0 also if it is not being drained.",
        lambda snapshot: snapshot.engine.session_moves.left,
    ),
    gauge(
        "waypost_drain_rate",
        "At most so many sessions a second leave this proxy for a drain; 0: it is not being drained, or paused.",
        _rate,
    ),
    counter(
        "waypost_drain_moved_total",
        "Sessions that have left this proxy for a drain.",
        lambda snapshot: snapshot.counters.drained,
    ),
    counter(
        "waypost_offers_total",
        "Sessions offered to another proxy, again if an offer led to nothing.",
        lambda snapshot: dict.fromkeys(set(Trigger) - {Trigger.ATTACH}, 0) | snapshot.counters.offers,
        labels=("trigger",),
    ),
)


def table() -> str:
    """Return the list of all metrics as a Markdown table: name, kind, labels, meaning."""
    rows = [
        f"| `{described.name}` | {described.kind} | {', '.join(f'`{label}`' for label in described.labels) or '-'} "
        f"| {described.meaning} |"
        for described in METRICS
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table())
