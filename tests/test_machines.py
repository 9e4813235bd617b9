"""Every pure machine has the one shape (waypost/machine.py), and gets the time as an argument."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from federation.links.endpoints import LinkEndpoints
from handover.acquisition import Acquisition
from handover.source import SourceTransfer
from handover.target import TargetTransfer
from node.machines.append_admission import AppendAdmission
from node.machines.journal_queue import JournalQueue
from node.machines.lifecycle import Lifecycle
from node.machines.runtime import Runtime, Stream
from proxy.engine import Engine
from tests.test_docs import SOURCES
from waypost.client.connector import Connector
from waypost.machine import Machine
from waypost.table_machine import TableMachine, TimedMachine

ROOT = Path(__file__).parent.parent
MACHINES: list[type[Machine[Any, Any]]] = [
    *(Acquisition, AppendAdmission, Connector, Engine, JournalQueue, Lifecycle, LinkEndpoints),
    *(Runtime, SourceTransfer, Stream, TableMachine, TargetTransfer, TimedMachine),
]
PURE = [
    *("proxy", "handover", "matching", "federation/links", "federation/site", "node/machines"),
    *("node/gateway/propagation.py", "waypost/client/connector.py", "waypost/client/protocol.py"),
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_machine_is_stepped_with_an_input_and_the_time(machine: type[Machine[Any, Any]]) -> None:
    assert list(inspect.signature(machine.step).parameters)[:3] == ["self", "input", "now_ms"]
    assert list(inspect.signature(machine.tick).parameters)[:2] == ["self", "now_ms"]
    assert list(inspect.signature(machine.next_deadline).parameters) == ["self"]


def test_each_module_that_says_that_it_is_pure_is_in_the_contract_that_checks_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = [contract["source_modules"] for contract in contracts if contract["name"].startswith("Pure rooms")]
    says_so = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if path.suffix == ".py" and re.search(r"\bPure[.:]", ast.get_docstring(ast.parse(path.read_text())) or "")
    ]
    assert len(says_so) > 30
    assert [module for module in says_so if not any(f"{module}.".startswith(f"{room}.") for room in pure)] == []


def test_no_pure_module_calls_a_clock() -> None:
    assert [room for room in PURE if not (ROOT / room).exists()] == []
    files = [path for room in PURE for path in (ROOT / room, *(ROOT / room).rglob("*.py"))]
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("now_ms", "unix_ms")
    ]
    assert len(files) > 50
    assert calls == []
