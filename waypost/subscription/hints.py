"""How to write it instead: the advice in messages about names.

Most wrong expressions are wrong in one way: names may hold operator characters, so `a==1` is one name. These
functions take such a name apart again, for the message only.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from waypost.subscription.errors import quoted
from waypost.subscription.functions import FUNCTIONS

_GLUE = re.compile(r"(==|!=|<=|>=|&&|\|\||\^\^|=|<|>)")
_GLUE_AT_END = re.compile(r"[-+*/%&|^~!]+$")
_WORDS = {"and": "&&", "or": "||", "xor": "^^", "not": "!", "AND": "&&", "OR": "||", "XOR": "^^", "NOT": "!"}
_OTHER_LANGUAGES = {
    "exists": "require",
    "lower": "fold-case",
    "lowercase": "fold-case",
    "startswith": "begins-with",
    "starts-with": "begins-with",
    "endswith": "ends-with",
    "length": "size",
    "len": "size",
    "matches": "regex",
    "like": "wildcard",
}


def glued(name: str, followed_by: str = "") -> str | None:
    """Return advice about a name that holds an operator, such as ``a==1`` where a blank was forgotten; None: the name
    holds none.

    Args:
        name: as written, one NAME token.
        followed_by: the text that stands, wrongly, behind the name; before it an operator at the name's end is a
            mistake, too.
    """
    apart = _GLUE.sub(lambda found: " == " if found[0] == "=" else f" {found[0]} ", name)
    if apart == name and followed_by:
        apart = _GLUE_AT_END.sub(lambda found: f" {found[0]} ", name)
    if apart == name:
        return None
    better = " ".join((apart + " " + followed_by).split())
    return f"{quoted(name)} is one name, because an operator needs a blank after a name; write {quoted(better)}"


def word_for_operator(name: str) -> str | None:
    """Return the advice about a word that is an operator in other languages, such as ``and``; None: the name is no such
    word.
    """
    if name not in _WORDS:
        return None
    return f"{name} is a name here and no operator; write {_WORDS[name]}"


def unknown_function(name: str) -> str:
    """Return the message about a function that does not exist."""
    near = [_OTHER_LANGUAGES[name]] if name in _OTHER_LANGUAGES else get_close_matches(name, FUNCTIONS, 1)
    advice = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(FUNCTIONS))}"
    return f"there is no function {quoted(name)}{advice}"
