"""A second parser of the subscription language, small and slow, written from docs/subscription-language.md.

The audit reads expressions with the parser of the service. This one shares nothing with it but the nodes of the tree,
so that a mistake of that parser is not believed by both.
"""

from __future__ import annotations

import math
import unicodedata

from waypost.notification import Int64, Value
from waypost.subscription.tree import Binary, Call, Compare, Literal, Name, Node, Not, Unary, join

LEVELS = [
    *(("||",), ("^^",), ("&&",)),
    ("!",),
    ("==", "!=", "<", "<=", ">", ">="),
    *(("+", "-"), ("*", "/", "%"), ("|",), ("^",), ("&",), ("<<", ">>", ">>>")),
]
"""From the loosest to the tightest."""
SYMBOLS = sorted({symbol for level in LEVELS for symbol in level} | set("~(),"), key=len, reverse=True)
BLANKS = " \t\r\n"
IN_NAMES = set("!#$%&*+-./:;<=>?@^_`{|}~") | set(map(chr, range(0x7F, 0x100)))
"""What may stand in a name behind its first character, beside letters and digits."""


class NotParsed(Exception):
    pass


class SecondParser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def parsed(self) -> Node:
        tree = self.level(0)
        if self.peek():
            raise NotParsed(f"more follows at {self.at}")
        return tree

    # ---- levels

    def level(self, number: int) -> Node:
        if number == len(LEVELS):
            return self.signed()
        symbols = LEVELS[number]
        if symbols == ("!",):
            return Not(self.level(number)) if self.take("!") else self.level(number + 1)
        left, legs = self.level(number + 1), []
        while (symbol := self.peek()) in symbols:
            self.at += len(symbol)
            right = self.level(number + 1)
            if symbols[0] == "==":
                return Compare(symbol, left, right)
            if number > LEVELS.index(("!",)):
                left = Binary(symbol, left, right)
            else:
                legs.append(right)
        return join(symbols[0], [left, *legs]) if legs else left

    def signed(self) -> Node:
        sign = self.peek()
        if sign not in ("-", "+", "~") or not sign:
            return self.primary()
        self.at += 1
        self.blanks()
        start = self.at
        if sign == "-" and self.here().isdigit() and self.here().isascii():
            digits = self.digits()
            is_decimal = "." in digits or digits[0] != "0" or digits[1:] in ("", "l", "L")
            if is_decimal:
                return Literal(self.number(digits, -1))
            self.at = start
        return Unary(sign, self.signed())

    def primary(self) -> Node:
        self.blanks()
        here = self.here()
        if self.take("("):
            inner = self.level(0)
            self.need(")")
            return inner
        if here in ("'", '"') and here:
            return Literal(self.string(here))
        if here.isdigit() and here.isascii():
            return Literal(self.number(self.digits(), 1))
        name = self.name()
        if not self.take("("):
            return Name(name)
        arguments: list[Node] = []
        while not self.take(")"):
            if arguments:
                self.need(",")
            arguments.append(self.level(0))
        return Call(name, tuple(arguments))

    # ---- tokens

    def here(self) -> str:
        return self.text[self.at : self.at + 1]

    def blanks(self) -> None:
        while self.here() and self.here() in BLANKS:
            self.at += 1

    def peek(self) -> str:
        """Return the operator that comes; "": the text is at its end; "?": something else comes."""
        self.blanks()
        if not self.here():
            return ""
        return next((symbol for symbol in SYMBOLS if self.text.startswith(symbol, self.at)), "?")

    def take(self, symbol: str) -> bool:
        found = self.peek() == symbol
        self.at += len(symbol) * found
        return found

    def need(self, symbol: str) -> None:
        if not self.take(symbol):
            raise NotParsed(f"no {symbol} at {self.at}")

    def string(self, quote: str) -> str:
        self.at += 1
        found = ""
        while (character := self.here()) != quote:
            self.at += 1 + (character == "\\")
            if self.at > len(self.text) or not character:
                raise NotParsed("no end of a string")
            found += self.text[self.at - 1]
        self.at += 1
        return found

    def name(self) -> str:
        found = ""
        while character := self.here():
            if character == "\\" and self.at + 1 < len(self.text):
                found += self.text[self.at + 1]
                self.at += 2
                continue
            is_letter = unicodedata.category(character)[0] == "L" or character == "_"
            is_more = bool(found) and (character in IN_NAMES or unicodedata.category(character)[0] in "LNM")
            if not (is_letter or is_more):
                break
            found += character
            self.at += 1
        if not found:
            raise NotParsed(f"no operand at {self.at}")
        return found

    def digits(self) -> str:
        start = self.at
        while self.here() and (self.here().isalnum() or self.here() in "._" or self._is_in_exponent(start)):
            self.at += 1
        return self.text[start : self.at]

    def _is_in_exponent(self, start: int) -> bool:
        read = self.text[start : self.at].lower()
        return self.here() in "+-" and read.endswith("e") and not read.startswith("0x")

    def number(self, digits: str, sign: int) -> Value:
        is_wide = digits[-1] in "lL"
        text = digits[:-1] if is_wide else digits
        try:
            if "_" in text or not text.isascii():
                raise ValueError
            if "." in text:
                if is_wide or not text.split(".")[1][:1].isdigit() or math.isinf(float(text)):
                    raise ValueError
                return sign * float(text)
            octal = len(text) > 1 and text[0] == "0" and text[1] not in "xX"
            value = sign * int(text, 8 if octal else 16 if text[:2] in ("0x", "0X") else 10)
        except ValueError:
            raise NotParsed(f"{digits} is no number") from None
        if not -(1 << (63 if is_wide else 31)) <= value < 1 << (63 if is_wide else 31):
            raise NotParsed(f"{digits} is too large")
        return Int64(value) if is_wide else value
