"""Texts of others on a terminal: what clients chose may not move its cursor."""

from __future__ import annotations


def escaped(text: str) -> str:
    """Return a text of others with its unprintable characters escaped as Python writes them, safe for one line on a
    terminal.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def printable(text: str) -> str:
    """Return a text of others with its unprintable characters replaced, safe for one line on a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
