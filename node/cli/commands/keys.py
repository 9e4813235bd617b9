"""`waypost key`: makes security keys, and reads them from files, one a line: SCHEME SIDE raw|public HEX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from node.cli.commands.input import unreadable
from waypost.errors import Refused
from waypost.keys import CONSUMER, NO_KEYS, PRODUCER, SIDES, Key, Keys, Scheme, Side

KEY_BYTES = 32
Form = Literal["raw", "public"]


def new_keys(scheme: str) -> list[Key]:
    """Return a raw random key of each side that the scheme names; nothing is written.

    Args:
        scheme: one of SIDES, such as "sha256-producer".

    Raises:
        Refused: there is no such scheme.
    """
    if scheme not in SIDES:
        raise Refused(f"{scheme} is no scheme; there are {', '.join(SIDES)}", field="scheme")
    known: Scheme = scheme
    return [Key(known, side, os.urandom(KEY_BYTES)) for side in (PRODUCER, CONSUMER) if side in SIDES[known]]


def print_keys(keys: list[Key], form: Form) -> None:
    """Print keys, one a line, as :func:`read_keys` reads them.

    Args:
        keys: all of one form.
        form: the form that they have, raw or public, to be printed.
    """
    for key in keys:
        print(key.scheme, key.side, form, key.value.hex())


def public_keys(file: Path) -> list[Key]:
    """Return the public forms of the raw keys in a file.

    Raises:
        Refused: the file cannot be read or has no key, or a line of it is no raw key; or there are too many.
    """
    return [key.public for key in _read(file, {PRODUCER: "raw", CONSUMER: "raw"}).listed()]


def read_keys(file: Path | None, side: Side, *, secure: bool = False) -> Keys:
    """Return the keys in a file.

    Args:
        file: None: no keys.
        side: whose keys are raw in the file; those of the other side are public.
        secure: whether notifications pass only where keys meet.

    Raises:
        Refused: the file cannot be read or has no key, or a line of it is no key, or the wrong form of one; or there
            is no file, and nothing would pass without one.
    """
    if file is None:
        if secure:
            raise Refused("nothing passes by --secure without keys; name their file by --keys-file", field="secure")
        return NO_KEYS
    return _read(file, {key_side: "raw" if key_side == side else "public" for key_side in (PRODUCER, CONSUMER)})


def consumer_key(file: Path | None, form: Form) -> bytes | None:
    """Return the one key in a file, of scheme sha256-consumer and this form; None without a file.

    Raises:
        Refused: the file cannot be read, or has anything else in it.
    """
    if file is None:
        return None
    wanted = f"{file} is to have one {form} key of `waypost key new --scheme sha256-consumer`"
    try:
        keys = _read(file, {PRODUCER: "public", CONSUMER: form}).listed()
    except Refused as error:
        raise Refused(f"{wanted}: {error.message}", field="key-file") from None
    if len(keys) != 1 or keys[0].scheme != "sha256-consumer":
        raise Refused(wanted, field="key-file")
    return keys[0].value


def _read(file: Path, forms: Mapping[Side, Form]) -> Keys:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error, "keys-file") from None
    keys = frozenset(_key(file, number, line, forms) for number, line in enumerate(lines, 1) if line.strip())
    if not keys:
        raise Refused(f"{file} has no key in it", field="keys-file")
    return Keys(keys)


def _key(file: Path, number: int, line: str, forms: Mapping[Side, Form]) -> Key:
    try:
        scheme, side, form, value = line.split()
        # As a frame is read, so that all that makes a key is looked at.
        key = msgspec.convert([scheme, side, bytes.fromhex(value)], Key)
    except msgspec.ValidationError as error:
        raise _refused(file, number, str(error).partition(" - at")[0]) from None
    except ValueError:
        raise _refused(file, number, "it is not SCHEME SIDE raw|public HEX, as `waypost key` prints it") from None
    if form != forms[key.side]:
        how = f"; `waypost key public {file}` prints it" if form == "raw" else ""
        raise _refused(
            file, number, f"the {key.side}'s key is to be {forms[key.side]} here, and this one is {form}{how}"
        )
    if form == "public" and len(key.value) != len(key.public.value):
        raise _refused(
            file, number, f"{len(key.value)} bytes; a public key of {key.scheme} has {len(key.public.value)}"
        )
    return key


def _refused(file: Path, number: int, why: str) -> Refused:
    return Refused(f"{file}, line {number}: {why}", field="keys-file")
