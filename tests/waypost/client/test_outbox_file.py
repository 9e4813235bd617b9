"""The file of an outbox, beside a list in memory."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waypost.client.outbox_file import OutboxFile, Post
from waypost.errors import BadArgument, LimitExceeded, NotFound, StoreFailed
from waypost.keys import Key

KEYS = [Key("sha256-producer", "producer", b"raw")]
BOUND = 60


def test_file_has_what_was_written_and_is_our_own(tmp_path: Path) -> None:
    path = tmp_path / "box"
    file = OutboxFile(path, "p", BOUND)
    assert file.append([Post(b"a"), Post(b"b", KEYS, insecure=False)]) == 0
    file.set_federation("f")
    secret = file.secret
    file.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    again = OutboxFile(path, "p", BOUND)
    assert (again.secret, again.federation, again.count) == (secret, "f", 2)
    assert again.read(0, 9) == [(0, Post(b"a")), (1, Post(b"b", KEYS, insecure=False))]
    again.close()


def test_another_process_another_producer_and_another_file_are_named(tmp_path: Path) -> None:
    path, other = tmp_path / "box", tmp_path / "other"
    with pytest.raises(BadArgument, match="No such file"):
        OutboxFile(tmp_path / "none" / "box", "p", BOUND)
    with pytest.raises(NotFound, match="no outbox"):
        OutboxFile(path, None, BOUND)
    file = OutboxFile(path, "p", BOUND)
    with pytest.raises(BadArgument, match="is open already"):
        OutboxFile(path, "p", BOUND)
    file.close()
    with pytest.raises(BadArgument, match="of producer p"):
        OutboxFile(path, "q", BOUND)
    other.write_text("something else, and longer than the header of a database is: " + "x" * 200)
    with pytest.raises(BadArgument, match="no outbox"):
        OutboxFile(other, "p", BOUND)
    other.unlink()
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(BadArgument, match="no outbox"):
        OutboxFile(other, "p", BOUND)
    # Whose file it is, nobody else's hand was laid on it.
    OutboxFile(path, None, BOUND).close()


def test_one_that_was_damaged_is_kept_apart_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "box"
    file = OutboxFile(path, "p", 1000)
    file.append([Post(b"first"), Post(b"second"), Post(b"third")])
    file.close()
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"second", b"Second"))
    again = OutboxFile(path, "p", 1000)
    assert [post.body for _, post in again.read(0, 9)] == [b"first", b"third"]
    (refused,) = again.refused(9)
    assert (refused.sequence, refused.body, refused.code) == (1, b"Second", "STORE_DAMAGED")
    assert again.count == 2
    again.forget_refused([1])
    assert again.refused(9) == []
    again.close()


def test_no_damage_goes_unnoticed(tmp_path: Path) -> None:
    """Bits and whole sectors: what comes is what was written, or it is said that something is missing or altered."""
    path, rng = tmp_path / "box", random.Random(3)
    file = OutboxFile(path, "p", 1 << 20)
    posts = [Post(rng.randbytes(60), KEYS, insecure=bool(n % 2)) for n in range(200)]
    file.append(posts)
    file.remove([*range(0, 200, 3)])
    file.set_federation("f")
    expected = dict(file.read(0, 1000))
    identity = (file.secret, file.federation)
    file.close()
    whole = path.read_bytes()
    noticed = 0
    for trial in range(400):
        damaged = bytearray(whole)
        at = rng.randrange(len(damaged))
        if trial % 4 == 0:
            damaged[at - at % 512 : at - at % 512 + 512] = bytes(512)
        elif trial % 4 == 1:
            del damaged[at:]
        else:
            damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            again = OutboxFile(path, "p", 1 << 20)
        except (BadArgument, StoreFailed):
            noticed += 1
            continue
        try:
            found = dict(again.read(0, 1000))
            missing = expected.keys() - found.keys()
            assert (again.secret, again.federation) == identity
            assert all(expected[sequence] == post for sequence, post in found.items())
            assert missing <= {refused.sequence for refused in again.refused(1000)}
            noticed += bool(missing)
        except StoreFailed:
            noticed += 1
        finally:
            again.close()
    assert noticed > 50


def test_refused_second_opening_leaves_the_lock(tmp_path: Path) -> None:
    """To close a file gives all locks of a process on it back, whoever has taken them."""
    path = tmp_path / "box"
    file = OutboxFile(path, "p", BOUND)
    for _ in range(2):
        with pytest.raises(BadArgument, match="is open already"):
            OutboxFile(path, "p", BOUND)
    imports = "from pathlib import Path; from waypost.client.outbox_file import OutboxFile"
    child = f"{imports}; OutboxFile(Path({str(path)!r}), 'p', 9)"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=60, check=False)
    assert "is open already" in done.stderr
    file.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=30), min_size=1, max_size=3)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 12), max_size=3)),
        st.tuples(st.just("refuse"), st.integers(0, 12)),
        st.tuples(st.just("read"), st.integers(0, 12)),
        st.tuples(st.just("open again"), st.none()),
    ),
    max_size=20,
)


@settings(deadline=None, max_examples=60)
@given(steps)
def test_file_does_as_a_list_does(steps: list[tuple[str, object]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "box"
        file = OutboxFile(path, "p", BOUND)
        waiting: dict[int, bytes] = {}
        refused: dict[int, bytes] = {}
        following = 0
        for kind, given_ in steps:
            match kind, given_:
                case "append", list() as bodies:
                    if sum(map(len, waiting.values())) + sum(map(len, bodies)) > BOUND:
                        with pytest.raises(LimitExceeded):
                            file.append([*map(Post, bodies)])
                    else:
                        assert file.append([*map(Post, bodies)]) == following
                        waiting |= dict(enumerate(bodies, following))
                        following += len(bodies)
                case "remove", list() as numbers:
                    file.remove(numbers)
                    waiting = {number: body for number, body in waiting.items() if number not in numbers}
                case "refuse", int() as number:
                    file.refuse(number, NotFound("nobody"))
                    if number in waiting:
                        refused[number] = waiting.pop(number)
                case "read", int() as first:
                    found = {sequence: post.body for sequence, post in file.read(first, 2)}
                    assert list(found.items()) == [each for each in sorted(waiting.items()) if each[0] >= first][:2]
                case _:
                    file.close()
                    file = OutboxFile(path, "p", BOUND)
            assert file.count == len(waiting)
        assert {one.sequence: one.body for one in file.refused(99)} == refused
        file.close()
