"""A proxy at another registry, or at another log, than its site's: refused in one line, whatever else it is told."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from chaos.cluster import ProxyProcess, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer

FLAGS = {"no-discovery": "", "mixed-backends": ""}
TIMEOUT_S = 30.0
REPORTED_S = 4.5
"""A proxy tells the registry every 2 s how far it has read."""


def _refused(first: ProxyProcess, second: ProxyProcess) -> str:
    """Return the line by which the second one ends, while the first one serves."""
    try:
        first.start()
        first.process.wait_until(
            lambda: first.request("/v1/status")["position"] > 0, timeout_s=TIMEOUT_S, what="reading its log"
        )
        time.sleep(REPORTED_S)
        second.process.start()
        second.process.wait_until(lambda: second.process.has_logged("error: "), timeout_s=TIMEOUT_S, what="refused")
        second.process.wait_until(lambda: not second.process.running, timeout_s=TIMEOUT_S, what="ended")
        assert first.ready(), first.request("/readyz")
        (line,) = [line for line in second.process.log.read_text().splitlines() if line.startswith("error: ")]
        return line
    finally:
        first.stop()
        second.stop()


def test_a_proxy_with_the_sites_log_and_another_registry_is_refused(
    kafka: KafkaServer, tmp_path: Path, topic_prefix: str
) -> None:
    flags = {**FLAGS, "kafka": kafka.bootstrap, "prefix": topic_prefix.rstrip("-")}
    first = ProxyProcess(ProxySpec("a1", "A", flags), (), tmp_path / "first")
    second = ProxyProcess(ProxySpec("a2", "A", flags), (), tmp_path / "second")
    line = _refused(first, second)
    assert line.startswith("error: BAD_CONFIGURATION: log: the log of site A belongs to federation ")
    assert line.endswith("and this registry is empty")


def test_a_proxy_with_the_federations_registry_and_another_log_is_refused(
    etcd: EtcdServer, tmp_path: Path, topic_prefix: str
) -> None:
    flags = {**FLAGS, "etcd": etcd.endpoint, "prefix": topic_prefix.rstrip("-")}
    first = ProxyProcess(ProxySpec("b1", "B", flags), (), tmp_path / "first")
    second = ProxyProcess(ProxySpec("b2", "B", flags), (), tmp_path / "second")
    line = _refused(first, second)
    assert line == "error: BAD_CONFIGURATION: log: the log of site B is another one than was read: it is empty"


def test_data_folder_of_another_site_is_refused_without_damage(tmp_path: Path) -> None:
    """A mistyped --site: what the folder knows is not true of that site's log, and says nothing of it."""
    folder = {"no-discovery": "", "data": str(tmp_path / "run")}
    first, other = (
        ProxyProcess(ProxySpec(*proxy_and_site, folder), (), tmp_path) for proxy_and_site in (("x", "A"), ("y", "B"))
    )
    first.start()
    first.process.wait_until(
        lambda: first.request("/v1/status")["position"] > 0, timeout_s=TIMEOUT_S, what="reading its log"
    )
    time.sleep(REPORTED_S)
    first.stop()
    other.start()
    mistyped = ProxyProcess(ProxySpec("x", "B", folder), (), tmp_path / "mistyped")
    line = _refused(other, mistyped)
    folder_of_x = tmp_path / "run" / "proxies" / "x"
    assert line == f"error: BAD_CONFIGURATION: site: {folder_of_x} is the folder of a proxy of site A"
    # As in a folder of which a part was lost.
    (folder_of_x / "site").unlink()
    line = _refused(other, ProxyProcess(ProxySpec("x", "B", folder), (), tmp_path / "again"))
    assert line.startswith("error: BAD_CONFIGURATION: site: this proxy's folder has read log ")
    assert "log epoch" not in mistyped.process.log.read_text()
    first.start()
    try:
        assert "begins anew" not in first.process.log.read_text()
    finally:
        first.stop()


def test_log_of_another_site_is_refused_before_anything_is_appended(tmp_path: Path) -> None:
    """Two sites with one log forward to each other what each has already, without an end for a while."""
    folder = {"no-discovery": "", "data": str(tmp_path / "run")}
    first = ProxyProcess(ProxySpec("a", "A", folder), (), tmp_path)
    first.start()
    first.process.wait_until(
        lambda: first.request("/v1/status")["position"] > 0, timeout_s=TIMEOUT_S, what="reading its log"
    )
    first.stop()
    (tmp_path / "run" / "sites" / "Z").symlink_to("A")
    line = _refused(first, ProxyProcess(ProxySpec("z", "Z", folder), ("A",), tmp_path / "second"))
    assert line == "error: BAD_CONFIGURATION: log: the log of site Z is the log of site A"


def test_no_log_is_begun_in_the_place_of_one_that_a_proxy_has(tmp_path: Path) -> None:
    proxy = ProxyProcess(ProxySpec("x", "A", {"no-discovery": ""}), (), tmp_path)
    proxy.start()
    command = [proxy.command[0], "sites", "begin-log", "A", "--data", str(tmp_path)]
    try:
        refused = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert refused.stderr.startswith("error: IN_USE: site: site A has a log, and proxies of it that run: x")
    finally:
        # Killed, for then nobody ends its lease but whoever asks who runs.
        proxy.process.kill()
    deadline, done = time.monotonic() + TIMEOUT_S, refused
    while done.returncode == 5:
        assert time.monotonic() < deadline, done.stderr
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
