"""A fuzzer that is led by coverage sends a proxy whatever it likes, for a bounded number of inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_fuzzer_finds_nothing_that_a_client_could_send_to_harm_a_proxy(tmp_path: Path) -> None:
    fuzzer = [
        sys.executable,
        "-m",
        "tests.fuzzing.dispatcher",
        "-runs=20000",
        "-seed=1",
        f"-artifact_prefix={tmp_path}/",
    ]
    run = subprocess.run(fuzzer, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-4_000:]
    assert "Done 20000 runs" in run.stderr
