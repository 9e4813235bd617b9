"""Guards of the house: words that do not come back, and structs whose fields are named where they are made."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.test_docs import PAGES, ROOMS, ROOT, SOURCES, name

RETIRED = """
    AccessWish Ahead Alone Answered AskSeen Asked Asker Asking Asks Begun Bell Claims Course Door DrainWish Dropped
    FarEnds Farewell Few GONE_BACK Give Held Hold HoldsDropped Keeper LAPSED LAST_WORDS LIVES_EACH LOOK_S Life
    LinkEnds Look NOBODY NearEnds NotTaken Offer PATIENCE_S Place PlaceShown Planting QUARREL_FIRST_MS Quarrels
    Rounds SaidFrontier SeenSo Shown SitePlace Speak SpeakLast Spoken Spread Stay StayReason Story TOLD_S Taken
    Tally Telling Terms Then Told Troubles WAKES_AT_ONCE Waking Way Ways Wish begin_anew chance come_home departed
    farewells goodbye heard_ms heed heeded held_expressions home_gone in_vain is_heard lapse_here lasts_s levelling
    life_of life_over max_connections_each mixed_parts nobody_waits once_kept open_parts part_of parts_ca
    patience_ms place_s rows_come_back said_farewell said_ms secret_told seeking settle settles sip_ms
    sleeping_input storm take_news take_place take_told tell_effective tires unsay until_given untold wake wrong_of
    wrongs told said heard mine
""".split()  # noqa: SIM905
"""Identifiers of the first build, which nobody knows outside of it (docs/renames.md)."""
RETIRED_PARTS = "farewell goodbye heed levelling patience quarrel storm tally tired tires untold wish".split()  # noqa: SIM905
"""Words that are no part of an identifier either."""
VERBLESS = (
    *("So many", "So much", "So long", "So often", "So far", "So small", "Of ", "It ", "The same", "One that"),
    *("When ", "Who ", "Whom ", "Whose ", "Whoever ", "Nobody ", "Until ", "Since ", "For how long", "As what"),
)
"""The description of an attribute or a constant begins with what it is, not with a fragment."""
PRONOUN = re.compile(r"\b(?:he|him|his)\b")
MAX_POSITIONAL = 5


@cache
def nodes(source: Path) -> list[ast.AST]:
    """Return all nodes of a module's code."""
    return list(ast.walk(ast.parse(source.read_text())))


@cache
def names_in(source: Path) -> frozenset[str]:
    """Return the names in a module's code."""
    found: set[str] = set()
    for node in nodes(source):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.keyword(arg=str() as word):
                found.add(word)
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.ClassDef(name=word):
                found.add(word)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found.update(part for alias in aliases for part in f"{alias.name}.{alias.asname or ''}".split("."))
                found.update((getattr(node, "module", None) or "").split("."))
            case (
                ast.MatchAs(name=str() as word)
                | ast.MatchStar(name=str() as word)
                | ast.MatchMapping(rest=str() as word)
            ):
                found.add(word)
            case ast.Global(names=words) | ast.Nonlocal(names=words) | ast.MatchClass(kwd_attrs=words):
                found.update(words)
            case ast.ExceptHandler(name=str() as word):
                found.add(word)
            case _:
                pass
    return frozenset(found)


def identifiers(source: Path) -> set[str]:
    """Return the names in a module's code, without underscores before them."""
    return {word.lstrip("_") for word in names_in(source)}


def test_words_of_the_first_build_do_not_come_back() -> None:
    def retired(identifier: str) -> bool:
        # A word in small letters is retired however it is written.
        return identifier in RETIRED or identifier.lower() in RETIRED

    sources = [path for path in SOURCES if path.suffix == ".py"]
    found = {name(path): {word for word in identifiers(path) if retired(word)} for path in sources}
    assert {path: words for path, words in found.items() if words} == {}


def test_parts_of_identifiers_are_words_of_the_field() -> None:
    def parts(identifier: str) -> set[str]:
        return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", identifier)}

    sources = [path for path in SOURCES if path.suffix == ".py"]
    found = {name(path): {word for word in identifiers(path) if parts(word) & set(RETIRED_PARTS)} for path in sources}
    assert {path: words for path, words in found.items() if words} == {}


def descriptions(source: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of the descriptions that stand below an attribute or a constant."""
    for node in nodes(source):
        body = getattr(node, "body", None)
        for above, below in pairwise(body) if isinstance(body, list) else ():
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(above, ast.Assign | ast.AnnAssign) and is_text and isinstance(below.value.value, str):
                yield below.lineno, below.value.value


def test_a_description_begins_with_what_it_describes() -> None:
    sources = [path for path in SOURCES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ROOMS]
    found = [
        f"{name(path)}:{line}: {text[:60]}"
        for path in sources
        for line, text in descriptions(path)
        if text.startswith(VERBLESS)
    ]
    assert found == []


def test_a_program_is_it() -> None:
    prose = [path for path in [*PAGES, *SOURCES] if path != Path(__file__) and path.name != "CHANGELOG.md"]
    found = {name(path): PRONOUN.findall(re.sub(r"`[^`]*`", "", path.read_text())) for path in prose}
    assert {path: words for path, words in found.items() if words} == {}


def records_of(room: str) -> Iterator[type]:
    """Yield the structs and dataclasses of a room, the rooms in it included."""
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, f"{room}."):
        if not module.name.endswith("__main__"):
            for kind in vars(importlib.import_module(module.name)).values():
                is_record = isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind))
                if is_record and kind.__module__ == module.name:
                    yield kind


@pytest.mark.parametrize("room", ROOMS)
def test_a_record_of_many_fields_is_made_with_their_names(room: str) -> None:
    def positional(kind: type) -> int:
        return sum(
            parameter.kind is not parameter.KEYWORD_ONLY for parameter in inspect.signature(kind).parameters.values()
        )

    many = {f"{kind.__module__}.{kind.__name__}": positional(kind) for kind in records_of(room)}
    assert {kind: count for kind, count in many.items() if count > MAX_POSITIONAL} == {}


def documented_arguments(docstring: str) -> list[str]:
    """Return the names in the section Args of a docstring."""
    section = re.search(r"^( *)Args:\n((?:\1 {4}.*\n|\s*\n)+)", docstring + "\n", re.MULTILINE)
    if section is None:
        return []
    entry = re.compile(rf"^ {{{len(section[1]) + 4}}}([\w`*, ]+):", re.MULTILINE)
    return [argument.strip("`* ") for names in entry.findall(section[2]) for argument in names.split(",")]


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Return what a function is called with, or a class is made of."""
    if isinstance(node, ast.ClassDef):
        fields = [statement.target for statement in node.body if isinstance(statement, ast.AnnAssign)]
        names = {field.id for field in fields if isinstance(field, ast.Name)}
        functions = [statement for statement in node.body if isinstance(statement, ast.FunctionDef)]
        makers = [function for function in functions if function.name in ("__init__", "__new__")]
        return names.union(*map(parameters, makers))
    signature = node.args
    extra = [argument for argument in (signature.vararg, signature.kwarg) if argument is not None]
    return {argument.arg for argument in [*signature.posonlyargs, *signature.args, *signature.kwonlyargs, *extra]}


@pytest.mark.parametrize("source", [path for path in SOURCES if path.suffix == ".py"], ids=name)
def test_documented_arguments_are_the_real_ones(source: Path) -> None:
    wrong = {
        f"{node.name}, line {node.lineno}": sorted(set(documented) - parameters(node))
        for node in nodes(source)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for documented in [documented_arguments(ast.get_docstring(node) or "")]
        if set(documented) - parameters(node)
    }
    assert wrong == {}


def code_words(source: Path) -> set[str]:
    """Return the names of a module's code, and the words of its literals that are no docstrings."""
    prose = {
        id(node.value) for node in nodes(source) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    literals = (
        node.value
        for node in nodes(source)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    )
    return {*names_in(source), *(word for text in literals for word in re.findall(r"\w+", text))}


def test_names_in_docstrings_of_code_are_names_of_that_code() -> None:
    """A rename by a script leaves what stands between backticks in prose."""
    python = [path for path in SOURCES if path.suffix == ".py"]
    everywhere = set().union(*map(code_words, python))
    stale = {}
    for path in python:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                named = re.findall(r"(?<!`)`([a-z_]\w*)`(?!`)", ast.get_docstring(node) or "")
                if wrong := sorted(set(named) - everywhere):
                    stale[f"{name(path)} {getattr(node, 'name', '')}"] = wrong
    assert stale == {}


ROLE = re.compile(r":(?:meth|func|class|data|attr|exc):`~?([\w.]+)`")


def scopes(source: Path) -> Iterator[tuple[str, str]]:
    """Yield each docstring and description of a module, with the name of the class around it, or ""."""
    for node in nodes(source):
        around = node.name if isinstance(node, ast.ClassDef) else ""
        if isinstance(node, ast.ClassDef | ast.Module):
            yield ast.get_docstring(node) or "", around
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield ast.get_docstring(inner) or "", around
                elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                    yield str(inner.value.value), around


@cache
def classes() -> dict[str, list[type]]:
    """Return the classes of all rooms by their names."""
    found: dict[str, list[type]] = {}
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not module.name.endswith("__main__"):
                for kind in vars(importlib.import_module(module.name)).values():
                    if isinstance(kind, type) and kind.__module__ == module.name:
                        found.setdefault(kind.__name__, []).append(kind)
    return found


def attribute(owner: object, part: str) -> object:
    """Return what an attribute of a class or module is, or that it is one; None: there is none."""
    kinds = owner.__mro__ if isinstance(owner, type) else (owner,)
    noted = {field for kind in kinds for field in getattr(kind, "__annotations__", {})}
    made = [vars(kind).get("__init__") for kind in kinds if isinstance(owner, type)]
    assigned = any(part in getattr(getattr(maker, "__code__", None), "co_names", ()) for maker in made)
    found: object = getattr(owner, part, None)
    return found if found is not None else (part if hasattr(owner, part) or part in noted or assigned else None)


def is_there(target: str, module: object, around: str) -> bool:
    """Tell whether a role in a docstring names something that there is."""
    parts = target.split(".")
    starts = [getattr(module, around, None), module, *classes().get(parts[0], ())]
    for start in starts:
        found: object = start
        for part in parts[start in classes().get(parts[0], ()) :]:
            found = attribute(found, part)
        if found is not None:
            return True
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = attribute(found, part)
        return found is not None
    return False


def test_each_role_in_a_docstring_names_something_that_there_is() -> None:
    sources = [path for path in SOURCES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ROOMS]
    stale = []
    for path in sources:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        roles = [(target, around) for text, around in scopes(path) for target in ROLE.findall(text)]
        if roles and not module.endswith("__main__"):
            there = importlib.import_module(module)
            stale += [f"{name(path)}: {target}" for target, around in roles if not is_there(target, there, around)]
    assert sorted(set(stale)) == []


def test_no_module_gives_one_name_two_values() -> None:
    """The second one would be the value of both, without a word."""
    twice = {}
    for path in SOURCES:
        if path.suffix == ".py":
            targets = [
                target.id
                for node in nodes(path)[0].body  # type: ignore[attr-defined]
                if isinstance(node, ast.Assign | ast.AnnAssign)
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(target, ast.Name)
            ]
            if len(targets) != len(set(targets)):
                twice[name(path)] = sorted({target for target in targets if targets.count(target) > 1})
    assert twice == {}
