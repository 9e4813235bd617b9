"""Draw the pictures of the docs: each `NAME.toml` in this folder becomes `NAME.svg` beside it.

python docs/pictures/render.py
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
FILL = {
    "site": "#f6f7f9",
    "client": "#fff4d6",
    "proxy": "#dcebff",
    "log": "#e3f4e3",
    "registry": "#fbe3e3",
    "audit": "#ece4fa",
}
FONT = 'font-family="sans-serif"'
Point = tuple[float, float]


def drawn(source: str) -> str:
    """Return a picture as SVG.

    Args:
        source: TOML: `width` and `height` in pixels; `box`es with an `id`, `at` (x, y, width, height), a `kind`, a
            `title` and lines of `text`; `arrow`s `from` one `to` another, with a `label`.
    """
    picture = tomllib.loads(source)
    boxes = {box["id"]: box for box in picture["box"]}
    size = f'width="{picture["width"]}" height="{picture["height"]}"'
    view = f'viewBox="0 0 {picture["width"]} {picture["height"]}"'
    common = 'markerWidth="8" markerHeight="8" refY="4" orient="auto"'
    head = f'<marker id="head" refX="7" {common}><path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker>'
    tail = f'<marker id="tail" refX="1" {common}><path d="M8 0 L0 4 L8 8 z" fill="#444"/></marker>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view}>',
        f"<defs>{head}{tail}</defs>",
        '<rect width="100%" height="100%" fill="white"/>',
        *(_box(box) for box in picture["box"]),
        *(_arrow(arrow, boxes[arrow["from"]]["at"], boxes[arrow["to"]]["at"]) for arrow in picture["arrow"]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: dict[str, Any]) -> str:
    x, y, width, height = box["at"]
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{FILL[box["kind"]]}" stroke="#667"/>'
    lines = [_text(x + 12, y + 20, box["title"], 'font-size="15" font-weight="bold"')]
    for number, line in enumerate(box.get("text", [])):
        lines.append(_text(x + 12, y + 40 + 17 * number, line, 'font-size="12" fill="#333"'))
    return "\n".join([shape, *lines])


def _arrow(arrow: dict[str, Any], start: list[float], end: list[float]) -> str:
    (x1, y1), (x2, y2) = _ends(start, end)
    style = ' stroke-dasharray="6 4"' if arrow.get("dashed") else ""
    back = ' marker-start="url(#tail)"' if arrow.get("both") else ""
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#444"{style}{back} marker-end="url(#head)"/>'
    if y1 == y2:
        label = _text((x1 + x2) / 2, y1 - 8, arrow["label"], 'font-size="12" text-anchor="middle"')
    else:
        label = _text(x1 + 8, (y1 + y2) / 2 - 4, arrow["label"], 'font-size="12"')
    return f"{line}\n{label}"


def _ends(start: list[float], end: list[float]) -> tuple[Point, Point]:
    """Return where an arrow leaves one box and meets the other: straight, across the gap between them."""
    (x1, y1, w1, h1), (x2, y2, w2, h2) = start, end
    if x1 + w1 < x2 or x2 + w2 < x1:
        middle = (max(y1, y2) + min(y1 + h1, y2 + h2)) / 2
        return ((x1 + w1, middle), (x2, middle)) if x1 < x2 else ((x1, middle), (x2 + w2, middle))
    middle = (max(x1, x2) + min(x1 + w1, x2 + w2)) / 2
    return ((middle, y1 + h1), (middle, y2)) if y1 < y2 else ((middle, y1), (middle, y2 + h2))


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" {FONT} {style}>{escape(text)}</text>'


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.toml")):
        path.with_suffix(".svg").write_text(drawn(path.read_text(encoding="utf-8")), encoding="utf-8")
