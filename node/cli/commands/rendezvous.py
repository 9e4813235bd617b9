"""`waypost rendezvous`: files of somebody who may be away, for somebody who may be away when they come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import waypost
from node.cli.commands.receive import ATTACH_S, WaitedInVain
from waypost.client import rendezvous
from waypost.errors import NotFound, OutputFailed, ReceiverTaken, Refused
from waypost.rendezvous import Request, Resource
from waypost.terminal import printable

NAME_LENGTH = 50
"""Characters of a file's name, its last ones; no file system takes more than 255 bytes, and we add to them."""


async def offer(
    name: str, folder: Path, *, proxy: str | None, key: bytes | None, token: Callable[[], str], as_json: bool
) -> None:
    """Answer the requests to an owner with files of a folder, until cancelled.

    Args:
        name: of the owner.
        proxy: the URL of a proxy; None: one found by mDNS.
        key: the owner's raw key, scheme sha256-consumer: only requests that are protected by its public form are
            answered; None: all are. Nothing is encrypted.
        token: returns the token to attach with; "": none.
        as_json: whether the line about each request is JSON.

    Raises:
        NotFound: `folder` is no folder.
        ReceiverTaken: somebody else has begun to offer under this name.
        WaypostError: no proxy lets the owner in, or as :meth:`waypost.client.rendezvous.Offering.serve` raises it.
    """
    root = _checked(folder).resolve()

    async def provide(request: Request) -> bytes:
        data = await asyncio.to_thread(_read, root, request)
        # Whether anybody reads what we print is no reason to refuse.
        with contextlib.suppress(OSError):
            _print(
                {"id": request.id, "requester": request.requester, "path": request.path, "bytes": len(data)}, as_json
            )
        return data

    async with waypost.offer(name, provide, proxy=proxy, key=key, token=token) as offering:
        print(f"offering {folder} as {name}", file=sys.stderr)
        try:
            await offering.serve()
        except ReceiverTaken:
            raise ReceiverTaken(f"somebody else offers as {name} now", hint="offer under another name") from None


def _checked(folder: Path) -> Path:
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder", field="folder")
    return folder


def _read(root: Path, request: Request) -> bytes:
    """Return a file of the folder. Raises NotFound, also for files elsewhere; Refused: it is too large."""
    missing = NotFound(f"{printable(request.path)} is not there")
    path = PurePosixPath(request.path)
    if path.is_absolute() or ".." in path.parts:
        raise missing
    try:
        file = (root / path).resolve()
        if not file.is_relative_to(root) or not file.is_file():
            raise missing
        size = file.stat().st_size
        if size > request.max_bytes:
            raise Refused(f"{printable(request.path)} has {size} bytes, and {request.max_bytes} are taken")
        return file.read_bytes()
    except (OSError, RuntimeError, ValueError):
        # Links that go round, names that no file can have, files that we may not read.
        raise missing from None


async def request(
    requester: str,
    owner: str,
    path: str,
    *,
    proxy: str | None,
    key: bytes | None,
    owner_key: bytes | None,
    token: Callable[[], str],
    as_json: bool,
) -> None:
    """Request a file of an owner, and print the rendezvous' id once the request is safe.

    Args:
        requester: the name under which the answer comes.
        path: of the file, as the owner knows it.
        proxy: the URL of a proxy; None: one found by mDNS.
        key: the requester's raw key: only its holder gets the answer; None: whoever subscribes to it does. Nothing is
            encrypted.
        owner_key: the owner's public key: only a holder of the raw one gets the request; None: whoever subscribes to it
            does.
        token: returns the token to attach with; "": none.

    Raises:
        NotFound: nobody is known to offer by that name; the id is printed all the same.
        WaypostError: no proxy lets the requester in, or the request is not known to be safe.
    """
    identity, known = await rendezvous.request(
        requester, owner, path, owner_key=owner_key, proxy=proxy, key=key, token=token
    )
    _print({"id": identity, "known": known}, as_json, text=identity)
    if not known:
        raise NotFound(
            f"nobody is known to offer as {owner}: if {owner} has never offered, this request is lost", field="owner"
        )


async def take(
    requester: str,
    folder: Path,
    *,
    count: int,
    wait_s: float,
    proxy: str | None,
    key: bytes | None,
    token: Callable[[], str],
    as_json: bool,
) -> None:
    """Write the answers for a requester into a folder, each into a file, and print a line about each. An answer that
    says why there is no file is a line alone; it counts, too.

    Args:
        requester: the name under which the answers come.
        count: end after so many; 0: go on.
        wait_s: end after so many seconds; 0: go on.
        proxy: the URL of a proxy; None: one found by mDNS.
        key: the requester's raw key; None: it has none.
        token: returns the token to attach with; "": none.

    Raises:
        NotFound: `folder` is no folder.
        WaitedInVain: `wait_s` are over, and fewer than `count` answers came, or none.
        OutputFailed: a file cannot be written; its answer comes again at the next call.
        WaypostError: no proxy lets the requester in, or the error that ended its session.
    """
    _checked(folder)
    until = asyncio.get_running_loop().time() + wait_s if wait_s else None
    taken = 0
    meeting = waypost.connect_rendezvous(
        requester, proxy=proxy, key=key, token=token, timeout_s=min(ATTACH_S, wait_s or ATTACH_S)
    )
    async with meeting:
        try:
            async with asyncio.timeout_at(until):
                async for resource in meeting:
                    _take(resource, folder, as_json)
                    taken += 1
                    if taken == count:
                        return
        except TimeoutError:
            if not taken or count:
                raise WaitedInVain(f"nothing more came within {wait_s:g} s") from None


def _take(resource: Resource, folder: Path, as_json: bool) -> None:
    if resource.error:
        _print({"id": resource.id, "path": resource.path, "error": resource.error}, as_json)
        return
    file = _target_file(resource, folder)
    unfinished = file.with_name(f".{file.name}.part")
    try:
        unfinished.write_bytes(resource.data)
        unfinished.rename(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        # It was not acknowledged, and comes again.
        raise OutputFailed(f"{file} cannot be written: {error.strerror}") from None
    _print({"id": resource.id, "path": resource.path, "file": str(file)}, as_json)


def file_name(path: str) -> str:
    """Return a harmless file name for a resource: the last part of its path, which its sender chose.

    It has no slash, is neither hidden nor "..", is not taken for an option by a shell's `*`, and shows in a terminal as
    what it is: a control character, or one that turns the direction of writing, becomes "_".
    """
    last = PurePosixPath(path).name[-NAME_LENGTH:]
    name = "".join(character if character.isprintable() else "_" for character in last).strip().lstrip(". ")
    return f"_{name[1:]}" if name.startswith("-") else name or "resource"


def _target_file(resource: Resource, folder: Path) -> Path:
    """Return the file in the folder, and nowhere else, for a resource whose name anybody may have chosen. A file is
    overwritten by the same rendezvous only.
    """
    file = folder / file_name(resource.path)
    own = "".join(character for character in resource.id if character.isalnum())[:32]
    if not file.exists() or _is(file, resource.data):
        return file
    return file.with_name(f"{file.name}.{own}")


def _is(file: Path, data: bytes) -> bool:
    """Tell whether the file has this data: it came before, and we ended before we acknowledged it."""
    try:
        return file.stat().st_size == len(data) and file.read_bytes() == data
    except OSError:
        return False


def _print(fields: dict[str, object], as_json: bool, text: str = "") -> None:
    if as_json:
        print(json.dumps({"v": 1} | fields), flush=True)
    else:
        print(text or printable(" ".join(str(value) for value in fields.values())), flush=True)
