"""One question a line, one answer a line, whatever the line holds."""

from __future__ import annotations

import json
import math

import pytest

from waypost.errors import BadNotification
from waypost.notification import Int64, type_name
from waypost.subscription.batch import evaluate_line, notification_from_json


def ask(expression: object, notification: object) -> dict[str, object]:
    return evaluate_line(json.dumps({"expr": expression, "notification": notification}))


@pytest.mark.parametrize(
    ("expression", "notification", "result"),
    [
        ("a == 1", {"a": {"int32": 1}}, "true"),
        ("a == 2", {"a": {"int32": 1}}, "false"),
        ("a == 1", {}, "bottom"),
        ("int64(a)", {"a": {"int64": 1}}, "true"),
        ("a == 9223372036854775807L", {"a": {"int64": "9223372036854775807"}}, "true"),
        ("real64(a) && a == 1", {"a": {"real64": 1}}, "true"),
        ("nan(a)", {"a": {"real64": "nan"}}, "true"),
        ("a > 1", {"a": {"real64": "inf"}}, "true"),
        ("a < 1", {"a": {"real64": "-inf"}}, "true"),
        ("a == 'x'", {"a": {"string": "x"}}, "true"),
        ("size(a) == 2", {"a": {"opaque": "00ff"}}, "true"),
        ("int32(a)", {"a": 1}, "true"),
        ("int64(a)", {"a": 5_000_000_000}, "true"),
        ("real64(a)", {"a": 1.0}, "true"),
        ("string(a)", {"a": "1"}, "true"),
    ],
)
def test_a_question_is_answered(expression: str, notification: object, result: str) -> None:
    assert ask(expression, notification) == {"result": result}


def test_a_refused_expression_is_answered_with_code_offset_and_message() -> None:
    answer = ask("a==1", {"a": 1})
    assert answer["result"] == "error"
    assert (answer["code"], answer["offset"]) == ("PARSE_ERROR", 0)
    assert "write a == 1" in str(answer["message"])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        '{"expr": 1, "notification": {}}',
        '{"notification": {}}',
        '{"expr": "a == 1"}',
        '{"expr": "a == 1", "notification": {"a": NaN}}',
        '{"expr": "a == 1", "notification": {"a": ' + "9" * 5000 + "}}",
        "[" * 100_000,
        '{"expr": "a == 1", "notification": ' + '{"a":' * 100_000,
    ],
)
def test_a_line_that_is_no_question_is_a_bad_message(line: str) -> None:
    answer = evaluate_line(line)
    assert (answer["result"], answer["code"], answer["offset"]) == ("error", "BAD_MESSAGE", None)


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        [1],
        {},
        {"int32": 1, "int64": 1},
        {"boolean": True},
        {"int32": 2**31},
        {"int32": 1.0},
        {"int32": True},
        {"int32": "1"},
        {"int64": 2**63},
        {"int64": "1e3"},
        {"int64": " 1"},
        {"int64": "99999999999999999999"},
        {"real64": "NaN"},
        {"real64": True},
        {"real64": 10**400},
        {"string": 1},
        {"string": "a\0"},
        {"opaque": "0"},
        {"opaque": "zz"},
        {"opaque": 1},
        {"string": None},
        2**63,
    ],
)
def test_a_value_of_no_type_is_refused_by_the_name_of_its_field(value: object) -> None:
    answer = ask("a == 1", {"price": value})
    assert (answer["result"], answer["code"], answer["offset"]) == ("error", "BAD_NOTIFICATION", None)
    assert "price" in str(answer["message"])


def test_a_string_that_is_no_text_is_refused() -> None:
    answer = ask("a == 1", {"price": {"string": "\ud800"}})
    assert (answer["result"], answer["code"], answer["offset"]) == ("error", "BAD_NOTIFICATION", None)
    assert "surrogate pair" in str(answer["message"])


@pytest.mark.parametrize("notification", [None, [], "x", 1])
def test_a_notification_is_an_object(notification: object) -> None:
    assert ask("a == 1", notification)["code"] == "BAD_NOTIFICATION"


def test_values_keep_their_types() -> None:
    notification = notification_from_json({"a": {"int64": 1}, "b": 1, "c": 1.5, "d": "x", "e": {"opaque": "00"}})
    types = {name: type_name(value) for name, value in notification.items()}
    assert types == {"a": "int64", "b": "int32", "c": "real64", "d": "string", "e": "opaque"}
    assert notification["a"] == Int64(1)
    assert math.isnan(float(notification_from_json({"x": {"real64": "nan"}})["x"]))


def test_the_refused_field_is_an_attribute_of_the_error() -> None:
    with pytest.raises(BadNotification) as caught:
        notification_from_json({"price": None})
    assert caught.value.field == "price"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("9" * 5000, "an integer of 5000 digits fits no type; int64 has at most 19"),
        ("[" * 100_000, "the brackets of this JSON are nested too deeply"),
        ("{", "the line is no JSON: Expecting property name enclosed in double quotes at character 2"),
        ('{"a": NaN}', 'the line is no JSON: NaN is none of its values; write {"real64": "nan"}, "inf" or "-inf"'),
    ],
)
def test_unreadable_line_is_answered_with_bad_message(line: str, message: str) -> None:
    assert evaluate_line(line) == {"result": "error", "code": "BAD_MESSAGE", "offset": None, "message": message}
