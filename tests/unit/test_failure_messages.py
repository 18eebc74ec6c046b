"""What messages of failures have in common: the same words, apart from what differs each time."""

from datetime import UTC, datetime

import pytest

from evervec.model.failures import FailureGroup, common_message, reasons_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def group(kind: str, message: str, open: int, example: str = "") -> FailureGroup:
    return FailureGroup(
        f"{kind}{message}", "default", kind, "model", message, example or message, 1, NOW, NOW,
        open, 0, open,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "common"),
    [
        ("text 7 has 9001 tokens", "text N has N tokens"),
        ("not valid UTF-8 at position 118", "not valid UTF-8 at position N"),
        ("not valid utf8 in field7", "not valid utf8 in N"),
        ("api.example.com answered 503 Service Unavailable after 30 s",
         "api.example.com answered 503 Service Unavailable after N s"),
        ("Error code: 429 for request 12", "Error code: 429 for request N"),
        ("HTTP 500 from node 3", "HTTP 500 from node N"),
        ("it answered 50341 times", "it answered N times"),
        ("UTF-118 is none", "UTF-118 is none"),
    ],
)  # fmt: skip
def test_numbers_that_name_something_are_kept(error: str, common: str) -> None:
    assert common_message(error) == common


def test_a_title_is_the_latest_message_with_its_numbers() -> None:
    found = group("note", "text N is too long", 1, "\n  text 7   is too long\nmore")
    assert found.title == "text 7 is too long"
    assert group("note", "text N", 1, "\n ").title == "text N"


def test_reasons_are_ordered_by_what_waits() -> None:
    found = reasons_of([
        group("note", "rare", 1), group("page", "frequent", 2), group("note", "over", 0),
        group("note", "frequent", 3),
    ])  # fmt: skip
    assert [{each.kind for each in reason} for reason in found] == [
        {"note", "page"},
        {"note"},
        {"note"},
    ]
    assert [reason[0].message for reason in found] == ["frequent", "rare", "over"]
