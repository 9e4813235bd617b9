"""The output end: a verdict as a JSON document, and as one HTML page that opens offline.

Everything that comes from logs is hostile: names of sessions and producers are chosen by clients. The page has no
script, and escapes all text.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from spark.schemas import CLASSES, FINDING
from spark.verdict import Verdict

VERSION = 1
TOTALS = ("published", "owed", "delivered", "lost", "pending", "duplicated")
_LISTED_ON_THE_PAGE = 100
_WIDE_INTEGERS = ("sequence",)
"""As text in JSON: readers in JavaScript would round what lies above 2**53."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid #8886; padding: .2rem .7rem; text-align: left; vertical-align: top }
.scroll { overflow-x: auto }
"""


def document(verdict: Verdict, source: str) -> dict[str, Any]:
    """Return the verdict as plain JSON values; integers that may exceed 2**53 are strings.

    Args:
        verdict: of the audit.
        source: the input of the audit, as the user named it.
    """
    classes = [
        {
            "code": code,
            "name": CLASSES[code][1],
            "rule": CLASSES[code][2],
            "makes": CLASSES[code][0],
            "count": count,
        }
        for code, count in verdict.counts.items()
    ]
    totals = {name: getattr(verdict, name) for name in TOTALS}
    examples = [
        {name: str(value) if name in _WIDE_INTEGERS else value for name, value in finding.items()}
        for finding in verdict.examples
    ]
    return {
        "v": VERSION,
        "input": source,
        "verdict": verdict.verdict,
        "totals": totals,
        "classes": classes,
        "findings": examples,
    }


def write_report(verdict: Verdict, source: str, folder: Path) -> None:
    """Write audit.json and audit.html into `folder`, which is created if it does not exist. Raises OSError.

    Args:
        verdict: of the audit.
        source: the input of the audit, as the user named it.
        folder: for the files; earlier ones of these names are overwritten.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(verdict, source), indent=1, ensure_ascii=False)
    (folder / "audit.json").write_text(text + "\n", encoding="utf-8")
    (folder / "audit.html").write_text(page(verdict, source), encoding="utf-8")


def page(verdict: Verdict, source: str) -> str:
    """Return the verdict as one HTML page, without a script, all text escaped.

    Args:
        verdict: of the audit.
        source: the input of the audit, as the user named it.
    """
    totals = [(name, f"{getattr(verdict, name):,}") for name in TOTALS]
    found = [(code, CLASSES[code][1], f"{count:,}", CLASSES[code][2]) for code, count in verdict.counts.items()]
    parts = [
        f"<h1>Audit: {escape(verdict.verdict)}</h1>",
        f"<p>of <code>{escape(source)}</code></p>",
        _table(("", "number"), totals),
        "<h2>Findings</h2>",
        _table(("code", "class", "number", "rule"), found) if found else "<p>None.</p>",
        *(_examples(verdict, code) for code in verdict.counts),
    ]
    head = f'<meta charset="utf-8"><title>Audit: {escape(verdict.verdict)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{"".join(parts)}\n</body></html>\n'


def _examples(verdict: Verdict, code: str) -> str:
    rows = [finding for finding in verdict.examples if finding["code"] == code]
    names = [name for name in FINDING.fieldNames() if name != "code" and any(finding.get(name) for finding in rows)]
    listed = [[str(finding.get(name, "")) for name in names] for finding in rows[:_LISTED_ON_THE_PAGE]]
    more = verdict.counts[code] - len(listed)
    rest = f"<p>and {more:,} more; audit.json lists the first of them</p>" if more else ""
    return f'<h3>{escape(code)} {escape(CLASSES[code][1])}</h3><div class="scroll">{_table(names, listed)}</div>{rest}'


def _table(heads: Any, rows: Any) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
