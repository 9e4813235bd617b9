"""Parts are there whole or not at all, and are built once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.servers import parts
from chaos.servers.parts import Download
from waypost.errors import Unreachable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYPOST_PARTS", str(tmp_path / "parts"))
    return tmp_path / "parts"


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Make `lamp` the only part there is; the answer is the list of its builds."""

    def offer(recipe: str = "one", fail: bool = False) -> list[str]:
        builds: list[str] = []

        def build(scratch: Path) -> Path:
            (scratch / "lamp").mkdir()
            (scratch / "lamp" / "half").write_text(recipe)
            time.sleep(0.1)
            if fail:
                raise Unreachable("the lamp broke")
            builds.append(recipe)
            return scratch / "lamp"

        monkeypatch.setattr(parts, "PARTS", {"lamp": Download("lamp", recipe, build)})
        return builds

    return offer


def test_a_part_is_installed_once(offer: Callable[..., list[str]], cache: Path) -> None:
    builds = offer()
    lines: list[str] = []
    parts.install(progress=lines.append)
    parts.install(progress=lines.append)
    assert builds == ["one"]
    assert [line.split(" in ")[0] for line in lines] == ["lamp: installed", "lamp: present"]
    assert parts.path("lamp") == cache / "lamp"


def test_a_changed_recipe_installs_anew(offer: Callable[..., list[str]], cache: Path) -> None:
    offer("one")
    parts.install()
    assert offer("two") == []
    parts.install()
    assert (cache / "lamp" / "half").read_text() == "two"


def test_a_failed_build_leaves_nothing_behind(offer: Callable[..., list[str]], cache: Path) -> None:
    offer(fail=True)
    with pytest.raises(Unreachable, match="the lamp broke"):
        parts.install()
    assert [path.name for path in cache.iterdir()] == [".lamp.lock"]
    with pytest.raises(Unreachable, match="lamp is not installed"):
        parts.path("lamp")


def test_two_installs_at_once_build_once(offer: Callable[..., list[str]]) -> None:
    builds = offer()
    threads = [threading.Thread(target=parts.install) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds == ["one"]


def test_a_missing_program_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unreachable, match="mvn is not on this machine") as caught:
        parts.install(["kafka"])
    assert "install Apache Maven" in (caught.value.hint or "")


def test_without_go_there_is_the_older_etcd() -> None:
    assert parts.etcd().parts[-2:] == ("etcdbin", "etcd")


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parts.main(["zookeeper"]) == 2
    assert "no such part: zookeeper" in capsys.readouterr().err
