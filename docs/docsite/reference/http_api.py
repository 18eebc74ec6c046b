"""The page of HTTP routes and schemas, from the OpenAPI document of the service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import evervec
from docsite.reference.markdown import code, prose, sections, table
from docsite.reference.python_api import explanation
from evervec.server.app import make_app

Json = Mapping[str, Any]
_MANY = 10


def openapi() -> Json:
    """The OpenAPI document, as `/openapi.json` shows it."""
    with evervec.open("memory:", embedder="hashing") as ev:
        return make_app(ev).openapi()


def page() -> str:
    described = openapi()
    shared = _shared(described)
    return sections(
        "# HTTP",
        "Every route of the service, from its OpenAPI document. A running service shows the same at "
        "`/docs`, and the document itself at `/openapi.json`. [The service](../service.md) explains "
        "them with curl. Send a key or a token as `Authorization: Bearer KEY`. Error responses are "
        "[problem documents](#problemdocument); their `type` names an [error](errors.md).",
        "## Error responses",
        "A route lists its own responses; those that many routes share are here.",
        table(("status", "meaning"), sorted(shared)),
        "## Routes",
        *(_operation(*each, shared=shared) for each in operations(described)),
        "## Schemas",
        *(
            _schema(name, schema)
            for name, schema in sorted(described["components"]["schemas"].items())
        ),
    )


def operations(described: Json) -> Iterator[tuple[str, str, Json]]:
    """Method, path and description of each operation."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _shared(described: Json) -> set[tuple[str, str]]:
    """Status and meaning of the errors that many routes have."""
    counts = Counter(
        (status, answer["description"])
        for _, _, operation in operations(described)
        for status, answer in operation["responses"].items()
        if status >= "400"
    )
    return {each for each, count in counts.items() if count >= _MANY}


def _operation(method: str, path: str, operation: Json, shared: set[tuple[str, str]]) -> str:
    parameters = (
        (
            code(each["name"]) + (" (required)" if each.get("required") else ""),
            each["in"],
            _type(each.get("schema", {})),
            meaning_of(each),
        )
        for each in operation.get("parameters", ())
    )
    bodies = (
        f"Body: {code(media)}, {_type(content.get('schema', {}))}"
        for media, content in operation.get("requestBody", {}).get("content", {}).items()
    )
    answers = (
        (status, answer.get("description", ""), _answer(answer))
        for status, answer in operation["responses"].items()
        if (status, answer["description"]) not in shared
    )
    usual = [
        status
        for status, answer in operation["responses"].items()
        if (status, answer["description"]) in shared
    ]
    return sections(
        f"### {method} {path}",
        f"**{operation.get('summary', '')}.** {prose(operation.get('description'))}",
        table(("parameter", "in", "type", "meaning"), parameters),
        *bodies,
        table(("status", "meaning", "response"), answers),
        f"[Errors](#error-responses): {', '.join(usual)}." if usual else "",
    )


def meaning_of(parameter: Json) -> str:
    """What a parameter means; where the service does not say it, as in Python."""
    said: str = parameter.get("description", "")
    return said or explanation("", parameter["name"])


def _answer(answer: Json) -> str:
    return ", ".join(
        _type(content.get("schema", {})) for content in answer.get("content", {}).values()
    )


def _schema(name: str, schema: Json) -> str:
    required = schema.get("required", ())
    fields = (
        (
            code(field) + (" (required)" if field in required else ""),
            _type(shape),
            prose(shape.get("description")),
        )
        for field, shape in schema.get("properties", {}).items()
    )
    return sections(
        f"### {name}",
        prose(schema.get("description")),
        table(("field", "type", "meaning"), fields),
        *(f"```json\n{json.dumps(each, indent=1)}\n```" for each in schema.get("examples", ())),
    )


def _type(schema: Json) -> str:
    """A short description of a value's type, with a link to its schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("allOf"):
        return " or ".join(_type(choice) for choice in choices)
    if "enum" in schema or "const" in schema:
        return ", ".join(code(json.dumps(e)) for e in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or schema.get("title") or "any")
