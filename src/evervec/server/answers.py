"""Request and response bodies, and headers with a meaning of their own: cursors, tags, waits.

A response has the fields of a value of the library (`shows`), except those that must not leave
the service, such as a job's token.
"""

from __future__ import annotations

import ast
import base64
import binascii
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import islice, pairwise
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError
from starlette.responses import Response

from evervec.model.deadlines import check
from evervec.records.kinds import plain_data
from evervec.server.problems import Problem

LINES = "application/x-ndjson"
"""media type of NDJSON responses"""
MOST_AT_ONCE = 1000
_PORTION = 16
"""values of a list that are encoded at once: no other thread of the process runs meanwhile"""
LONGEST_WAIT = 300.0
Json = dict[str, Any]
BigInt = Annotated[int, Field(ge=0, lt=1 << 63)]
More = Annotated[
    str | None, Field(description="pass it to get the next page; null: this is the last page")
]
Data = Annotated[Any, PlainSerializer(plain_data, return_type=Any)]
"""the object of a record"""
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)
_MOST_FIELDS = 100
"""of an object in a body; each that is unknown would be an error of its own"""
_STRICT = frozenset({"int", "float", "bool"})
_IN_JSON = {"None": "null", "False": "false"}
_TAG = re.compile(r'"(\d{1,19})"')


def _make_strict(schema: Any) -> None:
    """Pydantic's own strict mode is also strict about times, and about choices by their name."""
    if isinstance(schema, dict):
        if schema.get("type") in _STRICT:
            schema["strict"] = True
        for part in schema.values():
            _make_strict(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _make_strict(part)


class Given(BaseModel):
    """A request body; unknown fields are rejected, to catch typos. A number or a truth value must be
    one in JSON: no string stands for it, nor one of them for the other."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        made = handler(source)
        _make_strict(handler.resolve_ref_schema(made))
        return made

    @model_validator(mode="before")
    @classmethod
    def _check_count(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > _MOST_FIELDS:
            raise PydanticCustomError(
                "too_many_fields",
                "has {count} fields, most of which are unknown: see /docs",
                {"count": f"{len(given):,}"},
            )
        return given


@dataclass(frozen=True)
class _FirstError:
    """Ends the validation of a list at its first error: thousands would take long to describe."""

    def __get_pydantic_core_schema__(self, type: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        made: Any = handler(type)
        made["fail_fast"] = True
        found: CoreSchema = made
        return found


Item = TypeVar("Item")
Items = Annotated[list[Item], _FirstError()]
"""a list in a body"""


class Shown(BaseModel):
    """A response body, built from a value of the library."""

    model_config = ConfigDict(from_attributes=True)


S = TypeVar("S", bound=Shown)
_shapes: dict[str, type[Shown]] = {}
"""by the name of the dataclass that each shows"""


def shows(value: type, *hidden: str) -> Callable[[type[S]], type[S]]:
    """Give a response body the fields of a dataclass, except `hidden` ones and those that its
    `repr` leaves out. The fields' docstrings become their descriptions."""

    def complete(shape: type[S]) -> type[S]:
        types = get_type_hints(value, localns=_shapes)
        shown: dict[str, Any] = {
            f.name: (types[f.name], ...)
            for f in fields(value)
            if f.repr and f.name not in hidden and f.name not in shape.model_fields
        }
        shape.model_config["json_schema_extra"] = partial(_describe, value)
        made = create_model(
            shape.__name__, __base__=shape, __doc__=shape.__doc__, __module__=shape.__module__,
            **shown,
        )  # fmt: skip
        _shapes[value.__name__] = made
        return made

    return complete


def _describe(value: type, schema: Json) -> None:
    """Add the docstrings of a dataclass's fields to the schema of its shape."""
    with suppress(OSError):  # its source is not installed
        (defined,) = ast.parse(inspect.getsource(value)).body
        assert isinstance(defined, ast.ClassDef)
        for field, below in pairwise(defined.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ) if name in schema["properties"]:
                    told = re.sub("None|False", lambda m: _IN_JSON[m[0]], inspect.cleandoc(words))
                    schema["properties"][name].setdefault("description", told)


def answer(
    shape: type[BaseModel], value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response with a value of the library (or a dict) in its public shape."""
    body = shape.model_validate(value).model_dump_json(exclude_unset=True)
    return Response(body, status, headers, "application/json")


def answer_list(
    shape: type[BaseModel],
    field: str,
    values: Iterable[Any],
    rest: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The same, with a list of any length in one field, and `rest` in the others. It is encoded in
    portions, within the request's deadline: in a thread, other threads wait for one portion."""
    left, others = iter(values), dict(rest or {})
    portion = list(islice(left, _PORTION))
    if len(portion) < _PORTION:
        return answer(shape, {field: portion, **others}, headers=headers)
    part, parts = _list_of(shape, field), []
    while portion:
        check()
        made = part.dump_json(part.validate_python(portion), exclude_unset=True)
        parts.append(made[1:-1])
        portion = list(islice(left, _PORTION))
    end = shape.model_validate({field: [], **others}).model_dump_json(
        exclude_unset=True, exclude={field}
    )
    join = b"," if others else b""
    body = b"".join((b'{"', field.encode(), b'":[', b",".join(parts), b"]", join, end[1:].encode()))
    return Response(body, 200, headers, "application/json")


@cache
def _list_of(shape: type[BaseModel], field: str) -> TypeAdapter[Any]:
    """What a field with a list has."""
    found: Any = shape.model_fields[field].annotation
    return TypeAdapter(found)


def read_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The position in a cursor; raises a `Problem` if it is malformed. The library checks its
    values."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        place = json.loads(base64.b64decode(padded, b"-_", validate=True))
        if isinstance(place, list) and [type(part) for part in place] == list(kinds):
            return tuple(place)
    except (ValueError, binascii.Error, RecursionError):
        pass
    raise Problem(422, "invalid cursor: use the one from the previous page")


def read_filter_json(text: str) -> Json:
    """A filter given as JSON; raises a `Problem` if it is not an object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Problem(422, 'filter: is not JSON, such as {"year": 2020}') from None
    if not isinstance(found, dict):
        raise Problem(422, 'filter: must be an object, such as {"year": 2020}')
    return found


def asked_wait(prefer: str | None) -> float | None:
    """The seconds of `Prefer: wait=30`; other preferences are ignored (RFC 7240)."""
    found = _WAIT.search(prefer or "")
    return min(float(found[1]), LONGEST_WAIT) if found else None


def entity_tag(seq: int) -> str:
    return f'"{seq}"'


def asked_seq(if_match: str | None) -> int | None:
    """The seq in `If-Match`; None: any."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None or int(found[1]) >= 1 << 63:
        raise Problem(412, f"If-Match must be one ETag of this record, not {if_match[:40]!r}")
    return int(found[1])
