"""`waypost drain`, `waypost rebalance`, `waypost handovers`: moves of sessions between proxies."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from node.cli.commands.proxy_client import address, request
from node.cli.commands.table import print_table

POLL_S = 0.5
DRAIN_RATE = 20.0
"""Sessions a second, of a drain that nobody gives a rate."""


def drain(name: str, proxy: str | None, *, rate: float | None, paused: bool, wait: bool, as_json: bool) -> None:
    """Begin the drain of a proxy, have it go on, or pause it, and print how it is. Only
    :func:`stop_drain` ends it.

    Args:
        name: of the proxy to be drained.
        proxy: the URL of the proxy that is asked; None: one found by mDNS.
        rate: sessions a second; None: that of the drain that there is, else DRAIN_RATE.
        paused: whether the drain is to stand still; then `wait` has no effect.
        wait: whether to return only when no session is left at the proxy, with progress on stderr. The drain goes on.
        as_json: print the proxy's answer, or with `wait` the number of sessions that are left, as JSON, without
            progress.

    Raises:
        NotFound: there is no such proxy, or no drain of it to be paused.
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    url = address(proxy)
    body: dict[str, Any] = {"proxy": name, "paused": paused}
    if rate is not None:
        body["rate"] = rate
    elif not paused and all(row["proxy"] != name for row in request(url, "/v1/drains")["drains"]):
        body["rate"] = DRAIN_RATE
    answer = request(url, "/v1/drains", body)
    if paused or not wait:
        going_on = f"being drained, {answer['draining']['rate']:g} a second"
        line = f"the drain of proxy {name} is paused" if paused else f"proxy {name} is {going_on}"
        print(json.dumps(answer) if as_json else line)
        return
    left = _until_empty(url, name, as_json=as_json)
    if as_json:
        print(json.dumps({"v": 1, "proxy": name, "left": left}))
    else:
        again = f"; it is not ready again before `waypost drain {name} --stop`" if left == 0 else ""
        print(f"proxy {name} has {_sessions(left)}{again}")


def list_drains(proxy: str | None, *, as_json: bool) -> None:
    """Print the drains of all proxies, with the sessions that are left there and the proxies that may take them.

    Args:
        proxy: the URL of the proxy that is asked; None: one found by mDNS.

    Raises:
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    answer = request(address(proxy), "/v1/drains")
    if as_json:
        print(json.dumps(answer))
    else:
        print_table(("proxy", "rate", "paused", "left", "targets"), answer["drains"])


def stop_drain(name: str, proxy: str | None, *, as_json: bool) -> None:
    """End the drain of a proxy, and print that it has ended.

    Args:
        name: of the proxy that is drained.
        proxy: the URL of the proxy that is asked; None: one found by mDNS.

    Raises:
        NotFound: there is no proxy `name`, or it is not drained.
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    answer = request(address(proxy), "/v1/drains", {"proxy": name, "rate": None})
    print(json.dumps(answer) if as_json else f"proxy {name} is not drained any more")


def _until_empty(url: str, name: str, *, as_json: bool) -> int:
    """Return how many sessions are left when the drain has ended: 0, or more where somebody has cancelled it."""
    before, shown = None, False
    while True:
        rows = {row["proxy"]: row for row in request(url, "/v1/drains")["drains"]}
        left = int(rows[name]["left"]) if name in rows else None
        if left != before and left is not None and not as_json:
            print(f"{left} left", file=sys.stderr)
        if left == 0 or (left is None and before is not None):
            return before or 0 if left is None else 0
        if left and not rows[name]["targets"] and not shown:
            shown = True
            none = "no other proxy takes them: each one is drained, or has no lease"
            print(f"{none}; it goes on when one does, or: waypost drain {name} --stop", file=sys.stderr)
        before = left if left is not None else before
        time.sleep(POLL_S)


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


def rebalance(proxy: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Print the moves of sessions that level the load of every site, and, without `dry_run`, have them made.

    Args:
        proxy: the URL of the proxy that is asked; None: one found by mDNS.

    Raises:
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    answer = request(address(proxy), "/v1/rebalance", post=not dry_run)
    if as_json:
        print(json.dumps(answer))
        return
    print_table(("session", "from", "to"), answer["moves"])
    count = len(answer["moves"])
    are, have = ("is", "has") if count == 1 else ("are", "have")
    print(f"{_sessions(count)} {f'{are} to move' if dry_run else f'{have} been asked to move'}")


def handovers(proxy: str | None, *, as_json: bool) -> None:
    """Print the transfers that run at a proxy, and those that ended lately.

    Args:
        proxy: the URL of the proxy; None: one found by mDNS.

    Raises:
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    answer = request(address(proxy), "/v1/handovers")
    if as_json:
        print(json.dumps(answer))
        return
    if not answer["handovers"]:
        print(f"no handover runs at proxy {answer['proxy']}, and none has ended there since it started")
        return
    print_table(_HANDOVER, map(_handover, answer["handovers"]), _NUMBERS)


_HANDOVER = ("began", "session", "role", "peer", "epoch", "for", "phase", "time", "copied", "size", "why")
_NUMBERS = ("epoch", "time", "copied", "size")


def _handover(row: dict[str, Any]) -> dict[str, str]:
    """Return a row of the table: the phase of a transfer that runs, and for how long; the outcome of one that ended."""
    phase = row["outcome"] or f"{row['phase']} for {_time(row['phase_ms'])}"
    began = time.strftime("%H:%M:%S", time.localtime(row["began_at_ms"] / 1000))
    return row | {
        "began": began,
        "for": row["trigger"],
        "phase": phase,
        "time": _time(row["age_ms"]),
        "copied": row["entries"],
        "size": _size(row["bytes"]),
    }


def _time(milliseconds: int) -> str:
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 100_000 else f"{milliseconds // 60_000} min"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
