"""A recorded run as one static page: lanes, messages as arrows, roles as colours, faults as bands, and violations.

Time runs down, by events and not to scale: a second without events costs a line, and a millisecond with many can be
read. The times stand at the left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from chaos.simulator.kernel.recorder import REGISTRY, STEPS, VIOLATED, Message, Note, Recording, Span
from chaos.simulator.runs.schedule import Schedule

ROW, LEFT, HEAD, LANE, NARROW = 15, 70, 40, 250, 90
"""Pixels: of a line, of the times at the left, of the names at the top, of a lane, and of one without notes."""
COLOURS = {
    "serving": "#7bc47f",
    "frozen": "#7fb3e6",
    "shadow": "#e3d26f",
    "staged": "#f0a35e",
    "orphan": "#d98cd0",
    "dormant": "#b9b9b9",
    "down": "#efb0b0",
    "stalled": "#e6cfe6",
    "away": "#f7c7dc",
    "cut": "#f3c6a5",
    "full": "#e0b0c8",
    "slow": "#ece3b4",
}
EDGES = ("#1f5fa8", "#a8321f", "#1f8a4c", "#7a3fa8")
"""Colours of epochs, in turn: the edge of a role's bar, and the number at its top."""
FAULTY = ("down", "stalled", "away", "cut", "full", "slow")
"""What is wrong with a process, a log, a way or the registry: a band over the lane. The roles are bars in it."""
EVERY_DAY = frozenset({"LinkRecords", "LinkAppended", "Acknowledge", "Acknowledged", "Deliver", "Attested", "Interest"})
"""Messages that can be hidden together: there are many, and they seldom say what went wrong."""

STYLE = """
body{font:13px/1.4 system-ui,sans-serif;margin:0;display:flex;background:#fff;color:#111}
main{flex:1;overflow:auto;height:100vh}
aside{width:330px;padding:12px;border-left:1px solid #ccc;overflow:auto;height:100vh;box-sizing:border-box}
svg text{font:11px ui-monospace,monospace;fill:#111;paint-order:stroke;stroke:#fff;stroke-width:3px}
svg .lane{stroke:#ddd}svg .name{font-weight:bold;font-size:13px}svg .time{fill:#888}
svg .step text{font-weight:bold;fill:#7a4b00}svg .step rect{fill:#ffe9b8;opacity:.55}
svg .wrong text{font-weight:bold;fill:#b00020}svg .wrong rect{fill:#ffc9c9}
svg .arrow{stroke:#667;stroke-width:1;marker-end:url(#head)}svg .lost{stroke:#c33;stroke-dasharray:3 3}
svg .epoch{font-weight:bold}svg .say{fill:#556}svg .fault{fill:#8a3b1c;font-style:italic}svg .lost-name{fill:#c33}
.bad{color:#b00020;font-weight:bold}.good{color:#17642a;font-weight:bold}
.key span{display:inline-block;padding:0 6px;margin:2px;border-radius:3px}
.hide-every-day .every-day{display:none}
header{position:sticky;top:0;background:#fffc;height:40px}
@media (prefers-color-scheme:dark){
body{background:#161616;color:#ddd}svg text{fill:#ddd;stroke:#161616}svg .lane{stroke:#333}header{background:#161616e0}
svg .step text{fill:#ffd27a}svg .step rect{fill:#5a4310}svg .wrong rect{fill:#5c1420}svg .wrong text{fill:#ff9a9a}
svg .say{fill:#aab}.bad{color:#ff9a9a}.good{color:#8fd6a0}aside{border-color:#333}}
"""


@dataclass
class Scale:
    """The vertical position of a time on the page, in pixels: below the notes of that time, above those of the next."""

    times: list[int] = field(default_factory=list)
    columns: list[float] = field(default_factory=list)

    def add(self, at_ms: int) -> float:
        """Add a line for a note or message at the time `at_ms`; return its distance from the top of the page, in
        pixels.

        Times must not descend from one call to the next.
        """
        y = (self.columns[-1] if self.columns else HEAD) + ROW
        self.times.append(at_ms)
        self.columns.append(y)
        return y

    def of(self, at_ms: int) -> float:
        """Return the position, in pixels, of the last line at `at_ms` or before it; the head of the page if there is
        none.
        """
        at = bisect_right(self.times, at_ms)
        return self.columns[at - 1] if at else HEAD

    @property
    def end(self) -> float:
        """The height of the page, in pixels."""
        return (self.columns[-1] if self.columns else HEAD) + 2 * ROW


def drawn(run: Schedule, title: str) -> tuple[str, list[str]]:
    """Play a schedule; return the page of its run as HTML, and its violations; no file is written.

    If the engine raises, the violations are one of the kind FAULT.

    Args:
        run: the schedule.
        title: of the page.
    """
    world = run.world(recorded=True)
    try:
        violations = run.play(world=world)[1]
    except Exception as fault:
        violations = [f"FAULT {type(fault).__name__}: {fault}"]
        world.add_violation(violations[0])
    assert world.recording is not None
    script = [f"{wait} ms later: {name} {pick}" for wait, name, pick in run.script]
    return page(title, world.recording, violations, script, about(run)), violations


def about(run: Schedule) -> str:
    """Return the settings of a schedule that differ from the defaults, in words, without its steps."""
    settings = {name: getattr(run, name) for name in type(run).__dataclass_fields__ if name not in ("script", "seed")}
    plain = type(run)(seed=run.seed, sites=run.sites, script=[])
    return "; ".join(f"{name} {value}" for name, value in settings.items() if value != getattr(plain, name))


def page(title: str, recording: Recording, violations: Sequence[str], script: Iterable[str], about: str = "") -> str:
    """Return the page of a run as HTML; nothing is written.

    Args:
        title: the name of the run.
        recording: of the run, which has ended.
        violations: of the verdict; empty: all is well.
        script: the steps, in words.
        about: other settings of the run, such as its faults.
    """
    drawing = _Drawing(recording)
    verdict = "".join(f'<p class="bad">{escape(line)}</p>' for line in violations) or '<p class="good">all is well</p>'
    steps = "".join(f"<li>{escape(step)}</li>" for step in script)
    key = "".join(f'<span style="background:{colour};color:#111">{name}</span>' for name, colour in COLOURS.items())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>
<main id="run" class="hide-every-day">{drawing.header()}{drawing.svg()}</main>
<aside><h1>{escape(title)}</h1>{verdict}
<p><label><input type="checkbox" onchange="run.classList.toggle('hide-every-day')"> show every delivery,
acknowledgement and batch between sites</label></p>
<p class="key">{key}</p><p>{escape(about)}</p><h2>Script</h2><ol>{steps}</ol></aside></html>
"""


class _Drawing:
    def __init__(self, recording: Recording) -> None:
        self._scale = Scale()
        self._wide = noted = {note.lane for note in recording.notes}
        self._lanes: dict[str, int] = {}
        self._width = LEFT
        for lane in _lanes(recording):
            self._lanes[lane] = self._width
            self._width += LANE if lane in noted else NARROW
        self._shapes: list[str] = []
        happened: list[tuple[int, int, Note | Message]] = [
            *((note.at_ms, 0, note) for note in recording.notes),
            *((message.sent_ms, 1, message) for message in recording.messages),
        ]
        drawn_at = [
            (self._scale.add(at_ms), event) for at_ms, _, event in sorted(happened, key=lambda entry: entry[:2])
        ]
        for span in recording.spans:
            self._span(span)
        for y, event in drawn_at:
            if isinstance(event, Note):
                self._note(y, event)
            else:
                self._message(y, event)

    def header(self) -> str:
        """Return the names of the lanes as an HTML element, which stays at the top of the page."""
        names = "".join(
            f'<text class="name" x="{x + 8}" y="26">{escape(lane)}</text>' for lane, x in self._lanes.items()
        )
        return f'<header><svg width="{self._width}" height="{HEAD}">{names}</svg></header>'

    def svg(self) -> str:
        """Return lanes, spans, notes and messages as an SVG element."""
        height = self._scale.end
        lines = "".join(f'<path class="lane" d="M{x} 0V{height}"/>' for x in self._lanes.values())
        head = '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        arrow = f'<defs>{head}<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>'
        shapes = "".join(self._shapes)
        return f'<svg width="{self._width}" height="{height}" role="img">{arrow}{lines}{shapes}</svg>'

    def _time(self, y: float, at_ms: int) -> str:
        return f'<text class="time" x="4" y="{y}">{at_ms}</text>'

    def _span(self, span: Span) -> None:
        x, top = self._lanes[span.lane], self._scale.of(span.from_ms)
        bottom = self._scale.end if span.until_ms is None else self._scale.of(span.until_ms)
        is_band = span.condition in FAULTY
        width = (LANE if span.lane in self._wide else NARROW) - 4 if is_band else 10
        label = " ".join(filter(None, (span.of, span.condition, f"epoch {span.epoch}" if span.epoch else "")))
        self._shapes.append(
            f'<rect x="{x + 2}" y="{top}" width="{width}" height="{max(bottom - top, 2)}" '
            f'fill="{COLOURS[span.condition]}" opacity="{0.35 if is_band else 1}">'
            f"<title>{escape(label)}, {span.from_ms} to {span.until_ms or 'the end'} ms</title></rect>"
        )
        if span.epoch:
            # Neighbouring epochs differ by their edge; the number stands where the bar begins.
            edge = EDGES[span.epoch % len(EDGES)]
            self._shapes.append(
                f'<path d="M{x + 2} {top}V{max(bottom, top + 2)}" stroke="{edge}" stroke-width="3"/>'
                f'<text class="epoch" x="{x - 4}" y="{top + 11}" text-anchor="end" fill="{edge}">e{span.epoch}</text>'
            )
        if is_band:
            self._shapes.append(f'<text class="fault" x="{x + 20}" y="{top + 11}">{escape(label)}</text>')

    def _note(self, y: float, note: Note) -> None:
        kind = {STEPS: "step", VIOLATED: "wrong"}.get(note.lane)
        band = f'<rect x="0" y="{y - 11}" width="{self._width}" height="{ROW}"/>' if kind else ""
        x = LEFT + 4 if kind else self._lanes[note.lane] + 16
        text = note.text.removeprefix("--- ").removeprefix(f"{note.lane} ").removeprefix(f"{note.lane}@")
        self._shapes.append(
            f'<g class="{kind or "note"}">{band}{self._time(y, note.at_ms)}'
            f'<text x="{x}" y="{y}">{escape(text)}</text></g>'
        )

    def _message(self, y: float, message: Message) -> None:
        sender, receiver = self._lanes[message.sender], self._lanes[message.to]
        is_lost = message.arrives_ms is None
        direction = 10 if receiver > sender else -10
        end_y = y + ROW / 2 if message.arrives_ms is None else max(self._scale.of(message.arrives_ms), y)
        end = (sender + (receiver - sender) / 3, y + ROW / 2) if is_lost else (receiver, end_y)
        classes = "arrow lost" if is_lost else "arrow"
        name = f"{message.kind}{' lost' if is_lost else ''}"
        anchor = "start" if direction > 0 else "end"
        self._shapes.append(
            f'<g class="{"every-day" if message.kind in EVERY_DAY and not is_lost else "message"}">'
            f"{self._time(y, message.sent_ms)}"
            f'<path class="{classes}" d="M{sender} {y - 4}L{end[0]} {end[1] - 4}"/>'
            f'<text class="{"lost-name" if is_lost else "say"}" text-anchor="{anchor}" x="{sender + direction * 1.6}" '
            f'y="{y}">{escape(name)}</text></g>'
        )


def _lanes(recording: Recording) -> list[str]:
    """Return the lanes in their order: clients, proxies, logs, the registry."""
    spanned = dict.fromkeys(span.lane for span in recording.spans)
    proxies = [lane for lane in spanned if lane != REGISTRY and not lane.startswith("log ")]
    ends = dict.fromkeys(end for message in recording.messages for end in (message.sender, message.to))
    noted = dict.fromkeys(note.lane for note in recording.notes if note.lane not in (STEPS, VIOLATED))
    clients = [end for end in (*ends, *noted) if end not in proxies and end != REGISTRY and not end.startswith("log ")]
    logs = sorted(lane for lane in {**noted, **spanned} if lane.startswith("log "))
    return [*dict.fromkeys(clients), *sorted(proxies), *logs, REGISTRY]
