"""Builds a record that can be saved from a caller's input, and checks each part.

Invalid input is rejected here, before anything is written, and the error names the invalid part.
"""

from __future__ import annotations

import difflib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any

from evervec.errors import InvalidArgument, InvalidRecord
from evervec.model.basics import as_seconds
from evervec.model.bounds import check_bound, shown
from evervec.model.records import Record
from evervec.settings import Settings
from evervec.stores.values import Draft

LONGEST_ID = 2048
LONGEST_NAME = 256
"""bytes of UTF-8, the same for every store: a key of tenant, kind and id must fit into an entry of
PostgreSQL's B-tree, which takes 2,704 bytes with its headers"""
HIGHEST_PRIORITY = 1000
"""the lowest is its negative: enough to order a tenant's own jobs"""
_YEAR_1, _YEAR_10000 = -62135596800, 253402300800

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode

OPTIONS = frozenset(
    {
        "id", "title", "metadata", "weight", "priority", "delay", "max_attempts", "version",
        "created_at", "updated_at", "boxed", "vectors",
    }
)  # fmt: skip
_COMMON = frozenset({"id", "title", "metadata", "weight"})
ENVELOPE = OPTIONS | {"text"}
"""The keys of a record that `add_many` accepts for a kind without a model."""


def read_envelope(item: Any) -> tuple[Any, dict[str, Any]]:
    """The text and options of an `add_many` record of a kind without a model."""
    if isinstance(item, str):
        return item, {}
    if not isinstance(item, Mapping):
        raise InvalidRecord(f"a record must be a dict with a text, not {type(item).__name__}")
    check_fields(item)
    if "text" not in item:
        raise InvalidRecord("text: is missing")
    options = dict(item)
    return options.pop("text"), options


def check_fields(names: Iterable[Any]) -> None:
    """Check the keys of a record of a kind without a model."""
    if ENVELOPE.issuperset(names):
        return
    unknown = next(name for name in names if name not in ENVELOPE)
    close = difflib.get_close_matches(str(unknown)[:40], ENVELOPE, 1)
    hint = f"did you mean {close[0]!r}?" if close else "put other fields into metadata"
    raise InvalidRecord(f"unknown record field {str(unknown)[:40]!r}; {hint}")


def make_draft(
    text: Any, options: Mapping[str, Any], settings: Settings | None, data: str | None = None
) -> Draft:
    """A draft from a text and the options of `add`, each checked. `settings` limit their sizes;
    None for a record that was within the limits when it was accepted."""
    get = options.get
    body = check_text("text", text)
    title = get("title")
    if title is not None:
        title = check_text("title", title, may_be_empty=True) or None
    if settings is not None:
        _check_size(settings, "text", body)
        if title:
            _check_size(settings, "title", title)
        if data is not None:
            check_bound(settings, "text_chars", len(data), "data: has {} characters", InvalidRecord)
    digest = blake2b(body.encode(), digest_size=16, person=b"title" if title else b"")
    if title:
        digest.update(b"\0" + title.encode())
    draft = Draft(record_id(get("id")), body, digest.digest(), title, data=data)
    metadata = get("metadata")
    if metadata:
        draft.metadata = check_metadata(metadata, settings)
    elif metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidRecord(f"metadata: must be a dict, not {shown(metadata)}")
    if get("weight") is not None:
        draft.weight = _weight(options["weight"])
    if not options.keys() <= _COMMON:
        _rare_options(draft, get)
    return draft


def _rare_options(draft: Draft, get: Callable[[str], Any]) -> None:
    check_when(draft, get("priority"), get("delay"), get("max_attempts"))
    if get("version") is not None:
        draft.version = check_version(get("version"))
    draft.created_at = _moment("created_at", get("created_at"))
    draft.updated_at = _moment("updated_at", get("updated_at"))
    draft.boxed = bool(get("boxed"))


def check_version(version: Any) -> int:
    """The caller's version of a record."""
    return _whole("version", version, 0, -(1 << 63), (1 << 63) - 1)


def check_when(draft: Draft, priority: Any, delay: Any, max_attempts: Any) -> Draft:
    """Check the priority, delay and maximum attempts of a job, and set them in the draft."""
    draft.priority = _whole("priority", priority, 0, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    if delay is not None:
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < 1e10:
            raise InvalidRecord(f"delay: must be seconds from now, not {delay!r}")
        draft.delay = float(delay)
    if max_attempts is not None:
        draft.max_attempts = _whole("max_attempts", max_attempts, 1, 1, (1 << 31) - 1)
    return draft


def record_id(given: Any) -> str:
    """A record's id as text; a new UUIDv7 when none is given."""
    if given is None:
        return str(_uuid7())
    if isinstance(given, int) and not isinstance(given, bool):
        if given.bit_length() > 3 * LONGEST_ID:
            raise InvalidRecord(f"id: is a number of {given.bit_length()} bits, which is too long")
        return str(given)
    if isinstance(given, uuid.UUID):
        return str(given)
    return _check_length("id", check_text("id", given), LONGEST_ID)


def existing_id(given: Any) -> str:
    """The id of a record that exists, as text."""
    if given is None:
        raise InvalidRecord("id: is missing")
    return record_id(given)


def existing_ids(given: Any) -> list[str]:
    """The ids of records that exist, as texts."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgument(f"ids must be a list of ids, not {shown(given)}")
    return [existing_id(id) for id in given]


def are_plain_ids(ids: list[Any]) -> bool:
    """Whether all ids are valid without conversion: a fast check of a whole batch."""
    if set(map(type, ids)) != {str} or not all(ids) or any(map(str.isspace, ids)):
        return False
    everything = "".join(ids)
    if not everything.isascii() or "\0" in everything:
        return False
    return max(map(len, ids)) <= LONGEST_ID


def check_text(what: str, text: Any, *, may_be_empty: bool = False) -> str:
    if type(text) is not str:
        if not isinstance(text, str):
            raise InvalidRecord(f"{what}: must be text, not {type(text).__name__}")
        text = str(text)
    if not may_be_empty and (not text or text.isspace()):
        raise InvalidRecord(f"{what}: is empty")
    if "\0" in text:
        raise InvalidRecord(f"{what}: has a NUL character at position {text.index(chr(0))}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecord(
                f"{what}: has an unpaired surrogate at position {error.start}; decode it as UTF-8"
            ) from None
    checked: str = text
    return checked


def _check_length(what: str, text: str, longest: int) -> str:
    if 4 * len(text) > longest and (size := len(text.encode())) > longest:
        raise InvalidRecord(f"{what}: has {size} bytes in UTF-8; at most {longest} are allowed")
    return text


def check_name(what: str, name: Any, longest: int = LONGEST_NAME) -> str:
    """Check the name of a tenant or kind; raises `InvalidArgument` if it is invalid."""
    try:
        return _check_length(what, check_text(what, name), longest)
    except InvalidRecord as error:
        raise InvalidArgument(str(error)) from None


def check_after(after: Any) -> tuple[str, str] | None:
    """The kind and id after which a list of records begins, given by a record or as a pair."""
    if after is None:
        return None
    place = (after.kind, after.id) if isinstance(after, Record) else after
    if not isinstance(place, tuple | list) or len(place) != 2:
        raise InvalidArgument(f"after must be a record, or its kind and id, not {shown(after)}")
    kind, id = (check_name("after", part, LONGEST_ID) for part in place)
    return kind, id


def check_given(**names: str | None) -> None:
    """Check the names that are given, each called as its argument is."""
    for what, name in names.items():
        if name is not None:
            check_name(what, name)


def _check_size(settings: Settings, what: str, text: str) -> None:
    name = f"{what}_chars"
    if len(text) > getattr(settings, name):
        check_bound(settings, name, len(text), f"{what}: has {{}} characters", InvalidRecord)


def check_metadata(metadata: Any, settings: Settings | None) -> str:
    if not isinstance(metadata, Mapping):
        raise InvalidRecord(f"metadata: must be a dict, not {type(metadata).__name__}")
    for key in metadata:
        if not isinstance(key, str):
            raise InvalidRecord(f"metadata: keys must be text, not {shown(key)}")
    if settings is not None:
        _check_values(metadata, settings)
    text = to_json("metadata", dict(metadata))
    if settings is not None and 4 * len(text) > settings.metadata_bytes:
        size = len(text.encode())
        check_bound(settings, "metadata_bytes", size, "metadata: has {} bytes", InvalidRecord)
    if "\\u0000" in text and _has_nul(metadata):
        raise InvalidRecord("metadata: has a NUL character")
    return text


def _check_values(metadata: Mapping[str, Any], settings: Settings) -> None:
    """Limit the number of values and the nesting depth. Each engine limits the depth of JSON that
    it reads, at different values."""
    level: list[Any] = [metadata]
    count = depth = 0
    while level:
        depth += 1
        check_bound(
            settings, "metadata_depth", depth, "metadata: is nested {} deep or more", InvalidRecord
        )
        inner = list[Any]()
        for held in level:
            count += len(held)
            check_bound(
                settings, "metadata_values", count, "metadata: has {} values or more", InvalidRecord
            )
            parts = held.values() if isinstance(held, Mapping) else held
            inner += [part for part in parts if isinstance(part, (Mapping, list, tuple))]
        level = inner


def _has_nul(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple)):
        return any(_has_nul(part) for part in value)
    return isinstance(value, str) and "\0" in value


def to_json(what: str, value: Any) -> str:
    try:
        text = _encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidRecord(f"{what}: is not JSON: {reason}") from None
    return text


def _weight(weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
        raise InvalidRecord(f"weight: must be a number from 0 to 1, not {weight!r}")
    return float(weight)


def _whole(what: str, value: Any, default: int, least: int, most: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRecord(f"{what}: must be a whole number from {least} to {most}, not {value!r}")
    return value


def _moment(what: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, bool) and isinstance(value, (datetime, int, float)):
        seconds = as_seconds(value)
        if _YEAR_1 <= seconds < _YEAR_10000:
            return seconds
    raise InvalidRecord(f"{what}: must be a datetime or seconds since the epoch, not {value!r}")


def _uuid7() -> uuid.UUID:
    """A UUID that sorts by creation time (RFC 9562, version 7)."""
    bits = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    bits = bits & ~(0xF << 76) | 7 << 76
    return uuid.UUID(int=bits & ~(3 << 62) | 2 << 62)
