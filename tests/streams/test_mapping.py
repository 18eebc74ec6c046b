"""How messages become changes: plain JSON, and the events of Debezium."""

import json
from dataclasses import replace
from typing import Any

import pytest

from evervec import InvalidArgument, InvalidRecord, Kind
from evervec.integrations.streams.mapping import Change, MessageMapping
from evervec.integrations.streams.message import Message
from evervec.integrations.streams.registration import Registration
from support.world import World

ROW = {"id": 7, "title": "Owls", "body": "They hunt at night.", "views": 3}


def _message(value: Any, key: Any, headers: dict[str, str]) -> Message:
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    given = key if isinstance(key, bytes | None) else json.dumps(key).encode()
    return Message("topic/0", 5, given, data, headers)


def _event(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    source = source or {"connector": "postgresql", "lsn": 1234}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 99}


def _read(mapping: MessageMapping, value: Any, key: Any = None, **headers: str) -> Change | None:
    return mapping.read(_message(value, key, headers))


def _of(**given: Any) -> MessageMapping:
    return MessageMapping.of("note", **given)


DEBEZIUM = _of(debezium=True, text=["title", "body"])


# plain JSON
def test_a_plain_message_is_a_record_whose_version_is_its_offset() -> None:
    value = {"id": 7, "text": "owls"}
    assert _read(_of(), value) == Change("7", 5, value)


def test_a_null_value_deletes_the_record_of_its_key() -> None:
    for key in (b"7", b'"7"', {"id": 7}, {"schema": {}, "payload": {"id": 7}}):
        assert _read(_of(), None, key) == Change("7", 5, None)
    assert _read(_of(), None, b"shop/7") == Change("shop/7", 5, None)
    assert _read(_of(id=["a", "b"]), None, {"b": 2, "a": 1}) == Change('["1","2"]', 5, None)


def test_the_key_is_the_id_of_a_message_that_has_none() -> None:
    found = _read(_of(), {"text": "owls"}, b"7")
    assert found is not None
    assert found.id == "7"


def test_a_field_can_say_that_a_message_is_a_delete() -> None:
    for word in ("d", "DELETE", True, "true"):
        assert _read(_of(op="op"), {"id": 7, "op": word}) == Change("7", 5, None)
    found = _read(_of(op="op"), {"id": 7, "op": "u", "text": "owls"})
    assert found is not None
    assert found.values is not None


def test_a_version_comes_from_a_field_a_path_or_a_header() -> None:
    value = {"id": 7, "rev": 12, "meta": {"rev": "13"}, "at": "1970-01-02T00:00:00.000001Z"}
    for rule, version in (("rev", 12), ("meta.rev", 13), ("at", 86400_000_001), ("offset", 5)):
        found = _read(_of(version=rule), value)
        assert found is not None
        assert found.version == version, rule
    assert _read(_of(version="header:rev"), None, b"7", rev="14") == Change("7", 5, None)._replace(
        version=14
    )


@pytest.mark.parametrize(
    ("mapping", "value", "key", "reason"),
    [
        (_of(), b"{bad", None, "not JSON"),
        (_of(), b"", None, "not JSON"),
        (_of(), b'{"id": "\xff"}', None, "not JSON"),
        (_of(), [1], None, "must be a JSON object"),
        (_of(), {"text": "owls"}, None, "neither an id nor a key"),
        (_of(), {"text": "owls"}, b"\xff\xfe", "not valid UTF-8"),
        (_of(), {"id": None, "text": "owls"}, None, "'id' is missing"),
        (_of(), {"id": [1], "text": "owls"}, None, "must be text or a whole number"),
        (_of(), {"id": True, "text": "owls"}, None, "must be text or a whole number"),
        (_of(), {"id": 1e300, "text": "owls"}, None, "must be text or a whole number"),
        (_of(), {"id": "x" * 3000, "text": "owls"}, None, "3000 bytes"),
        (_of(version="rev"), {"id": 7, "text": "owls"}, None, "rev is missing"),
        (_of(version="rev"), {"id": 7, "rev": 1.5}, None, "version: must be a whole number"),
        (_of(version="rev"), {"id": 7, "rev": 1 << 64}, None, "version: must be a whole number"),
        (_of(version="rev"), {"id": 7, "rev": "soon"}, None, "whole number or a time"),
        (_of(version="rev"), None, b"7", "rev is missing"),
    ],
)
def test_a_message_that_cannot_be_read_says_why(
    mapping: MessageMapping, value: Any, key: Any, reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        _read(mapping, value, key)


@pytest.mark.parametrize(
    ("mapping", "values", "reason"),
    [
        (_of(), {"id": 7}, "text: is missing"),
        (_of(), {"id": 7, "text": 5}, "must be text"),
        (_of(), {"id": 7, "text": "owls", "metadata": 5}, "metadata"),
        (_of(), {"id": 7, "text": "owls", "colour": 5}, "unknown record field 'colour'"),
        (_of(), {"id": 7, "text": "owls", "version": 5}, "followed by offsets"),
        (_of(), {"id": 7, "text": "owl\0"}, "NUL"),
        (_of(text="body"), {"id": 7, "bdy": "owls"}, "has no field body"),
        (
            _of(text="body", updated_at="at"),
            {"id": 7, "body": "owls", "at": "soon"},
            "at: must be a time, not 'soon'",
        ),
        (
            _of(text="body", weight="w"),
            {"id": 7, "body": "owls", "w": "much"},
            "w: must be a number",
        ),
        (_of(text="body", weight="w"), {"id": 7, "body": "owls", "w": {}}, "w: must be a number"),
    ],
)
def test_content_that_cannot_be_a_record_says_why(
    memory: World, mapping: MessageMapping, values: Any, reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        mapping.draft(memory.ev, Change("7", 5, values))


def test_fields_become_a_record_as_columns_do(memory: World) -> None:
    mapping = _of(
        text="{title}: {body}", title="title", metadata=["views", "none"], updated_at="at"
    )
    seconds = 1_700_000_000
    for at in (seconds, seconds * 10**3, seconds * 10**6, seconds * 10**9, "2023-11-14T22:13:20Z"):
        draft = mapping.draft(memory.ev, Change("7", 5, {**ROW, "at": at}))
        assert draft is not None
        assert (draft.id, draft.version, draft.title) == ("7", 5, "Owls")
        assert draft.text == "Owls: They hunt at night."
        assert json.loads(draft.metadata) == {"views": 3, "none": None}
        assert draft.updated_at == seconds


def test_a_record_that_lost_its_text_is_deleted(memory: World) -> None:
    assert DEBEZIUM.draft(memory.ev, Change("7", 5, {"title": None, "body": " "})) is None


def test_a_registered_kind_reads_the_fields_itself(memory: World) -> None:
    memory.ev.register(Kind("note", text="{title}. {body}"))
    draft = _of(debezium=True).draft(memory.ev, Change("7", 5, ROW))
    assert draft is not None
    assert (draft.id, draft.version, draft.text) == ("7", 5, "Owls. They hunt at night.")


# Debezium
@pytest.mark.parametrize("schema", [False, True])
@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_an_event_with_the_row_after_it_is_a_record(op: str, schema: bool) -> None:
    value, key = _event(op, {"id": 7}, ROW), {"id": 7}
    if schema:
        value, key = {"schema": {}, "payload": value}, {"schema": {}, "payload": key}  # type: ignore[dict-item]
    assert _read(DEBEZIUM, value, key) == Change("7", 1234, ROW)


def test_an_event_without_the_row_is_a_delete() -> None:
    for before in ({"id": 7, "title": None}, None):
        assert _read(DEBEZIUM, _event("d", before), {"id": 7}) == Change("7", 1234, None)
    named = _of(debezium=True, id="id", text="body")
    assert _read(named, _event("d", {"id": 7})) == Change("7", 1234, None)


def test_what_concerns_no_row_is_passed_over() -> None:
    assert _read(DEBEZIUM, None, {"id": 7}) is None, "its delete came before"
    by_offset = _of(debezium=True, version="offset")
    assert _read(by_offset, None, {"id": 7}) == Change("7", 5, None), "compaction keeps only this"
    assert _read(DEBEZIUM, {"schema": None, "payload": None}, {"id": 7}) is None
    assert _read(DEBEZIUM, _event("m")) is None


def test_a_key_of_several_columns_is_one_id() -> None:
    found = _read(DEBEZIUM, _event("c", None, ROW), {"shop": "a", "id": 7})
    assert found is not None
    assert found.id == '["a","7"]'


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ({"connector": "postgresql", "lsn": 1 << 40}, 1 << 40),
        ({"connector": "mysql", "file": "mysql-bin.000003", "pos": 154}, 3 << 32 | 154),
        ({"connector": "mariadb", "file": "log.999999", "pos": 1}, 999999 << 32 | 1),
        ({"connector": "sqlserver", "commit_lsn": "0027:0758:0005"}, 5),
        ({"connector": "mongodb", "ord": 1}, 5),
        ({}, 1234),
    ],
)
def test_the_connector_decides_what_orders_its_changes(source: Any, version: int) -> None:
    found = _read(DEBEZIUM, _event("c", None, ROW, **source), {"id": 7})
    assert found is not None
    assert found.version == version


def test_a_later_place_in_a_log_has_a_greater_version() -> None:
    """The rows of one statement share a position, and may bring back the key that another row of
    it had: `update t set id = id + 1`."""
    places = [
        ("bin.000001", 4_294_967_295, 0), ("bin.000002", 4, 0), ("bin.000002", 4, 1),
        ("bin.000002", 40, None), ("bin.1000000", 4, 0),
    ]  # fmt: skip
    events = [
        _event("c", None, ROW, connector="mysql", file=file, pos=pos, row=row)
        for file, pos, row in places
    ]
    versions = [found.version for e in events if (found := _read(DEBEZIUM, e, {"id": 7}))]
    assert versions == sorted(set(versions))
    assert len(versions) == 5


def test_a_time_of_the_event_can_be_its_version() -> None:
    found = _read(_of(debezium=True, version="ts_ms"), _event("c", None, ROW), {"id": 7})
    assert found is not None
    assert found.version == 99


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (_event("t"), None, "truncated"),
        (_event("x", None, ROW), {"id": 7}, "op: is 'x'"),
        (_event("c"), {"id": 7}, "after: is missing"),
        ({"ts_ms": 5}, None, "not an event of Debezium"),
        ({"op": 5}, None, "not an event of Debezium"),
        ([], None, "not an event of Debezium"),
        (_event("c", None, ROW), None, "no key"),
        (_event("c", None, ROW), b"7", "no key"),
        (_event("c", None, ROW, connector="postgresql"), {"id": 7}, "source.lsn"),
        (_event("c", None, ROW, connector="postgresql", lsn="7"), {"id": 7}, "source.lsn"),
        (_event("c", None, ROW, connector="mysql", file="bin", pos=1), {"id": 7}, "file and pos"),
        (_event("c", None, ROW, connector="mysql", file="b.1", pos=-1), {"id": 7}, "no place"),
        (_event("c", None, ROW, connector="mysql", file="b.1", pos=1, row=-1), {"id": 7}, "row -1"),
    ],
)
def test_an_event_that_cannot_be_read_says_why(value: Any, key: Any, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        _read(DEBEZIUM, value, key)


def test_positions_of_a_later_epoch_are_newer_than_all_before() -> None:
    first, again = _of(), replace(_of(), epoch=1)
    late = Message("notes", (1 << 48) - 1, b"7", b'{"text": "old"}')
    early = Message("notes", 0, b"7", b'{"text": "new"}')
    assert again.read(early).version > first.read(late).version  # type: ignore[union-attr]
    assert again.read(Message("notes", 3, b"7", None)).version == 1 << 48 | 3  # type: ignore[union-attr]
    by_field = replace(_of(version="rev"), epoch=1)
    assert by_field.read(Message("notes", 3, b"7", b'{"rev": 5}')).version == 5  # type: ignore[union-attr]


def test_a_large_column_that_was_not_sent_is_not_taken_for_a_text(memory: World) -> None:
    change = Change("7", 5, {**ROW, "body": "__debezium_unavailable_value"})
    with pytest.raises(InvalidRecord, match="REPLICA IDENTITY FULL"):
        DEBEZIUM.draft(memory.ev, change)


# the mapping itself
def test_a_mapping_is_kept_as_text() -> None:
    for mapping in (DEBEZIUM, _of(), _of(id=["a", "b"], text="{a}", version="x.y", op="o")):
        kept = Registration(mapping, "made in 2026")
        assert Registration.load(kept.dump()) == kept


@pytest.mark.parametrize(
    "given",
    [
        {"title": "title"},
        {"debezium": True, "op": "op"},
        {"version": "lsn"},
        {"version": ""},
        {"version": "header:"},
    ],
)
def test_a_mapping_that_cannot_work_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument):
        _of(**given)
