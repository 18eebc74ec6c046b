"""The line of qualifiers above the list of jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evervec.model.jobs import Status
from evervec.server.dashboard.filter_bar import LONGEST, Line, compose
from evervec.server.dashboard.job_filter import filter_of, offered, qualifiers, suggestions

ALL = qualifiers(is_admin=True)


def read(text: str) -> Line:
    return Line(text, ALL)


def test_a_line_says_one_thing_with_each_qualifier() -> None:
    line = read(' status:failed,pending kind:"team note"  error:"rate limit" worker:host:123 id:7 ')
    assert line.errors == []
    found = filter_of(line)
    assert found.status == ("failed", "pending")
    assert found.kind == "team note"
    assert found.error == "rate limit"
    assert found.worker == "host:123"
    assert found.prefix == "7"
    assert filter_of(read("group:3f2a")).fingerprint == "3f2a"


@pytest.mark.parametrize(
    ("text", "older", "newer"),
    [
        ("age:>1h", 3600.0, None),
        ("age:<10min", None, 600.0),
        ("age:1h..2d", 3600.0, 172_800.0),
    ],
)
def test_an_age_has_a_least_or_a_greatest_value_or_both(
    text: str, older: float | None, newer: float | None
) -> None:
    found = filter_of(read(text))
    assert (found.older_than, found.newer_than) == (older, newer)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state:failed", "unknown qualifier 'state': use status, kind, id, age, group, error or"),
        ("timeout", "'timeout' has no qualifier: write id:timeout or error:timeout"),
        ("status:bad", "unknown status 'bad': use pending, processing, done or failed"),
        ("status:failed,bad", "unknown status 'bad'"),
        ("age:1h", "must be an age such as >1h"),
        ("age:>2 parsecs", "must be an age such as >1h"),
        ("age:2d..1h", "must be an age such as >1h"),
        ("age:>999999999d", "must be an age such as >1h"),
        ("kind:", "kind: needs a value, such as kind:note"),
        ("kind:a kind:b", "kind: is given twice"),
        ("kind:a\0b", "kind: has characters that cannot be stored"),
        ("error:\ud800", "error: has characters that cannot be stored"),
        (":x", "unknown qualifier ''"),
        ("x" * (LONGEST + 1), "at most 500 characters"),
    ],
)
def test_what_cannot_be_read_is_said_with_what_is_known(text: str, said: str) -> None:
    assert said in "; ".join(read(text).errors)


def test_a_tenant_cannot_search_what_it_does_not_see() -> None:
    for text in ("error:secret", "worker:host"):
        (error,) = Line(text, qualifiers(is_admin=False)).errors
        assert "use status, kind, id, age or group" in error


def test_a_qualifier_is_replaced_added_or_left_out() -> None:
    line = read("status:failed kind:note")
    assert line.with_(status="done") == "status:done kind:note"
    assert line.with_(status=None) == "kind:note"
    assert line.with_(error='say "hi" \\') == r'status:failed kind:note error:"say \"hi\" \\"'


def test_suggestions_say_one_thing_more_than_the_line() -> None:
    found = suggestions(read("status:failed"), offered(["note", "odd kind"], ["3f2a"], ["host:1"]))
    assert "status:failed kind:note" in found
    assert 'status:failed kind:"odd kind"' in found
    assert "status:failed age:>1h" in found
    assert "status:failed group:3f2a" in found
    assert 'status:failed worker:"host:1"' in found
    assert not any("status:done" in each for each in found)


texts = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60
)


@given(st.dictionaries(st.sampled_from(["kind", "id", "error", "worker", "group"]), texts))
def test_a_composed_line_is_read_as_it_was_meant(values: dict[str, str]) -> None:
    assert read(compose(values)).values == values


@given(st.text(max_size=LONGEST + 50))
def test_any_text_is_read_or_refused(text: str) -> None:
    line = read(text)
    if not line.errors:
        filter_of(line)
        assert read(compose(line.values)).values == line.values


def test_every_status_can_be_asked_for() -> None:
    assert all(filter_of(read(f"status:{status}")).status == (status,) for status in Status)
