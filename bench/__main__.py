"""Runs the benchmarks that are named, or all, and prints one table."""

from __future__ import annotations

import sys
from importlib import import_module

from bench.measurement import Row, machine, show
from waypost.errors import WaypostError

NAMES = (
    "matching",
    "estimates",
    "log",
    "links",
    "routing",
    "delivery",
    "backlog_reading",
    "peers",
    "handover",
    "backlog",
    "scale",
    "failover",
    "drain",
    "simulator",
    "audit",
)


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; return the exit status: not 0 if one of them could not run."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    status = 0
    for name in names or NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found = import_module(f"bench.{name}").run()
            print(show(found), file=sys.stderr, flush=True)
            rows += found
        except WaypostError as error:
            # What the others have measured is shown all the same.
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            status = error.exit_status
    print(machine())
    print(show(rows))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
