"""The pages of Python names, from signatures and docstrings.

A docstring explains an argument by naming it in backticks. Arguments and fields that mean the same
wherever they occur are explained once, in `words.toml`.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import evervec
from docsite.reference.markdown import code, prose, sections, table

WORDS = Path(__file__).with_name("words.toml")
_PAGES = ("python", "client", "values", "protocols", "errors", "settings")
_WIDTH = 92
_RETURNS = {"aopen": "AsyncEvervec", "deadline": "ContextManager[Deadline]"}
"""where a wrapper shows the type of what it wraps"""


def library() -> str:
    return _page(
        "python",
        "# Python",
        "`import evervec`: opening a store, and the objects that one works with. "
        "[Values](values.md) lists what their methods return, [Clients](client.md) the same methods "
        "for asyncio and over HTTP, [Errors](errors.md) what they raise.",
    )


def clients() -> str:
    return _page(
        "client",
        "# Asyncio and clients",
        "The methods of [`Evervec`](python.md#evervec) for asyncio, and over HTTP. Arguments "
        "that are not explained here mean the same as there.",
    )


def values() -> str:
    return _page(
        "values",
        "# Values",
        "What methods take and return. Values do not change after they were made; times are aware "
        "UTC datetimes.",
    )


def protocols() -> str:
    return _page(
        "protocols",
        "# Protocols",
        "What your own embedder, reranker or chunker must have. They are protocols: no base class "
        "is needed.",
    )


def page_of(name: str) -> str:
    """The page on which a public name is described."""
    value, home = getattr(evervec, name), evervec._HOME[name]
    if name == "Settings":
        return "settings"
    if inspect.isclass(value) and issubclass(value, evervec.EvervecError):
        return "errors"
    if getattr(value, "_is_protocol", False):
        return "protocols"
    if home.startswith(("evervec.client", "evervec.aio")):
        return "client"
    if inspect.isclass(value) and home.startswith(
        ("evervec.model", "evervec.tables", "evervec.embedders")
    ):
        return "values"
    return "python"


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that evervec defines, by name."""
    hidden = {f.name for f in fields(owner)} if is_dataclass(owner) else set()
    hidden |= set(known_words()["internal"].get(owner.__name__, ()))
    for name, value in inspect.getmembers_static(owner):
        inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
        inner = getattr(inner, "func", inner)
        own = str(getattr(inner, "__module__", "")).startswith("evervec")
        if not name.startswith("_") and name not in hidden and callable(inner) and own:
            yield name, value


def explanation(owner: str, name: str) -> str:
    """What an argument or field means, where the docstring leaves that to `words.toml`."""
    words = known_words()
    return words.get(owner, {}).get(name) or words["everywhere"].get(name, "")


@cache
def known_words() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(WORDS.read_text("utf-8"))


def signature_of(function: Any) -> inspect.Signature:
    function = getattr(function, "__func__", function)
    found = inspect.signature(function)
    kept = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    return found.replace(parameters=kept)


def field_words(owner: type) -> Mapping[str, str]:
    """The meaning of each field that has a string below it in the code."""
    found: dict[str, str] = {}
    for each in reversed(owner.__mro__):
        if each.__module__.startswith("evervec"):
            body = ast.parse(dedent(inspect.getsource(each))).body[0]
            assert isinstance(body, ast.ClassDef)
            for line, below in zip(body.body, body.body[1:], strict=False):
                if isinstance(line, ast.AnnAssign | ast.Assign) and isinstance(below, ast.Expr):
                    target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
                    if isinstance(target, ast.Name) and isinstance(below.value, ast.Constant):
                        found[target.id] = str(below.value.value)
    return found


def _page(page: str, *introduction: str) -> str:
    names = [name for name in evervec.__all__ if page_of(name) == page]
    names.sort(
        key=lambda name: (name != "open", inspect.isclass(getattr(evervec, name)), name.lower())
    )
    assert page in _PAGES
    return sections(*introduction, *(_entry(name, getattr(evervec, name)) for name in names))


def _entry(name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return _function(f"## {name}", f"evervec.{name}", name, value)
    return sections(
        f"## {name}",
        prose(value.__doc__ if _has_own_doc(value) else ""),
        _constructor(name, value),
        _fields(name, value),
        *(_member(name, *each) for each in members(value)),
    )


def _has_own_doc(value: type) -> bool:
    """Whether a docstring is not the one that a dataclass makes up."""
    return bool(value.__doc__) and not str(value.__doc__).startswith(f"{value.__name__}(")


def _constructor(name: str, value: type) -> str:
    if page_of(name) not in ("python", "client") or is_dataclass(value) or issubclass(value, Enum):
        return ""
    if "__init__" not in vars(value) or name in ("Evervec", "AsyncEvervec", "Worker", "Migration"):
        return ""
    return call(f"evervec.{name}", name, value.__init__)


def _fields(name: str, value: type) -> str:
    if issubclass(value, Enum):
        return table(("value",), ((code(each.value),) for each in value))
    if is_dataclass(value):
        said = field_words(value)
        rows = (
            (
                code(f.name),
                code(f.type),
                _default(f.default, f.default_factory),
                prose(said.get(f.name)) or explanation(name, f.name),
            )
            for f in fields(value)
            if not f.name.startswith("_")
        )
        return table(("field", "type", "default", "meaning"), rows)
    notes = {n: a for n, a in inspect.get_annotations(value).items() if not n.startswith("_")}
    said = field_words(value) if notes else {}
    attributes = (
        (code(n), code(a), prose(said.get(n)) or explanation(name, n)) for n, a in notes.items()
    )
    return table(("attribute", "type", "meaning"), attributes)


def _default(default: Any, factory: Any = MISSING) -> str:
    if default is not MISSING and default is not inspect.Parameter.empty:
        shown = repr(default)
        return code(shown if " at 0x" not in shown else "…")
    return code("…") if factory is not MISSING else ""


def _member(owner: str, name: str, value: Any) -> str:
    title = f"### {owner}.{name}"
    if isinstance(value, property) or hasattr(value, "func"):
        inner: Callable[..., Any] = getattr(value, "fget", None) or value.func
        given = inspect.signature(inner).return_annotation
        kind = "" if given is inspect.Signature.empty else f"`{given}`. "
        return sections(title, kind + prose(inner.__doc__ or explanation(owner, name)))
    function = getattr(value, "__func__", value)
    return _function(title, name, f"{owner}.{name}", function)


def _function(title: str, shown: str, path: str, function: Any) -> str:
    return sections(title, prose(described(path, function)), call(shown, path, function))


def described(path: str, function: Any) -> str:
    """The docstring of a function; a method without one is described where `Evervec` or a
    protocol has the same, or in `words.toml` under its own name."""
    owner, _, name = path.rpartition(".")
    own = inspect.getdoc(function) or ""
    return (
        own
        or explanation(owner, f"{name}()")
        or inspect.getdoc(getattr(evervec.Evervec, name, None))
        or ""
    )


def call(shown: str, path: str, function: Any) -> str:
    """The signature of a function, and what its arguments mean."""
    found = signature_of(function)
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    returns = _RETURNS.get(path) or _annotation(found.return_annotation)
    after = f" -> {returns}" if returns not in ("", "None") else ""
    parts = list(_parts(found))
    line = f"{prefix}{shown}({', '.join(parts)}){after}"
    if len(line) > _WIDTH:
        line = f"{prefix}{shown}(\n" + "".join(f"    {part},\n" for part in parts) + f"){after}"
    said = described(path, function)
    rows = (
        (code(each), explanation(path, each))
        for each in found.parameters
        if explanation(path, each) and f"`{each}`" not in said
    )
    return sections(f"```python\n{line}\n```", table(("argument", "meaning"), rows))


def _parts(found: inspect.Signature) -> Iterator[str]:
    """The parameters as they are written in a signature, with `*` where only names are allowed."""
    kinds = inspect.Parameter
    starred = False
    for each in found.parameters.values():
        starred |= each.kind is kinds.VAR_POSITIONAL
        if each.kind is kinds.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        stars: dict[Any, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
        star = stars.get(each.kind, "")
        given = _annotation(each.annotation)
        default = _default(each.default).strip("`")
        yield (
            f"{star}{each.name}"
            + (f": {given}" if given else "")
            + (f" = {default}" if default else "")
        )


def _annotation(given: Any) -> str:
    """A type as the code writes it; what a client yields inside is what its caller gets."""
    if given is inspect.Signature.empty:
        return ""
    text = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    text = str(given).removeprefix("evervec.") if "[" in str(given) else text
    return re.sub(r"^Call\[(.*)\]$", r"\1", text)
