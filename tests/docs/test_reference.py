"""The reference, which is made from the code, describes every name, argument, setting, command,
metric and error."""

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import evervec
from docsite.pages import made
from docsite.reference import alerts, command_line, http_api, metrics, python_api
from evervec.server.problems import error_classes
from evervec.settings import Settings
from evervec.telemetry.counters import COUNTERS, HISTOGRAMS

NAMES = [name for name in evervec.__all__ if python_api.page_of(name) not in ("errors", "settings")]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(evervec, name))]


def _functions() -> list[tuple[str, Any]]:
    found = [(name, getattr(evervec, name)) for name in NAMES if name not in CLASSES]
    for owner in CLASSES:
        for name, value in python_api.members(getattr(evervec, owner)):
            if not isinstance(value, property) and not hasattr(value, "func"):
                found.append((f"{owner}.{name}", getattr(value, "__func__", value)))
    return found


@pytest.mark.parametrize("name", evervec.__all__)
def test_every_public_name_has_a_description(name: str) -> None:
    if name == "Settings":
        return  # its fields are the page
    text = made(python_api.page_of(name))
    found = re.search(rf"^## {name}\n\n(\S.+)$", text, re.MULTILINE)
    assert found, f"{name} has no docstring"


@pytest.mark.parametrize("owner", CLASSES)
def test_every_public_method_and_property_has_a_description(owner: str) -> None:
    text = made(python_api.page_of(owner))
    for name, _ in python_api.members(getattr(evervec, owner)):
        found = re.search(
            rf"^### {owner}\.{name}\n\n(?!```)(?:`[^`]+`\. )?(\w.+|`.+)$", text, re.MULTILINE
        )
        assert found, f"{owner}.{name} needs a docstring, or {name}() in words.toml"


def test_every_argument_is_explained() -> None:
    functions = _functions()
    assert len(functions) > 100
    unexplained = [
        f"{path}({name})"
        for path, function in functions
        for name in python_api.signature_of(function).parameters
        if not re.search(rf"`[^`]*\b{name}\b[^`]*`", python_api.described(path, function))
        and not python_api.explanation(path, name)
    ]
    assert not unexplained, "name them in the docstring, or explain them in words.toml"


@pytest.mark.parametrize("owner", CLASSES)
def test_every_field_is_explained(owner: str) -> None:
    value: type = getattr(evervec, owner)
    if not is_dataclass(value):
        return
    said = python_api.field_words(value)
    for field in fields(value):
        if not field.name.startswith("_"):
            known = said.get(field.name) or python_api.explanation(owner, field.name)
            assert known or f"`{field.name}`" in (value.__doc__ or ""), (
                f"{owner}.{field.name}: write a string below it, or explain it in words.toml"
            )


def test_words_explain_only_what_exists() -> None:
    functions = dict(_functions())
    arguments = {p for f in functions.values() for p in python_api.signature_of(f).parameters}
    attributes = {
        f.name for c in CLASSES if is_dataclass(v := getattr(evervec, c)) for f in fields(v)
    }
    for c in CLASSES:
        attributes |= set(inspect.get_annotations(getattr(evervec, c)))
        arguments |= set(inspect.signature(getattr(evervec, c)).parameters)
    for _, _, operation in http_api.operations(http_api.openapi()):
        arguments |= {parameter["name"] for parameter in operation.get("parameters", ())}
    for owner, words in python_api.known_words().items():
        if owner == "everywhere":
            assert set(words) <= arguments | attributes, set(words) - arguments - attributes
        elif owner == "internal":
            for name, methods in words.items():
                assert all(hasattr(getattr(evervec, name), method) for method in methods), name
        elif owner in functions:
            assert set(words) <= set(python_api.signature_of(functions[owner]).parameters), owner
        else:
            value = getattr(evervec, owner)
            known = {*dir(value), *getattr(value, "__dataclass_fields__", ())}
            assert {word.removesuffix("()") for word in words} <= known, owner


def test_every_setting_is_listed_with_its_default() -> None:
    listed = made("settings")
    for field in fields(Settings):
        assert f"| `{field.name}` |" in listed
        assert field.metadata["meaning"] in listed.replace("\\|", "|")
    assert "| `lease_seconds` | `60.0` |" in listed


def test_every_command_is_listed_with_its_options_and_an_example() -> None:
    listed = made("cli")
    names = [name for name, _, _ in command_line.commands()]
    assert "keys create" in names
    for name, command, _ in command_line.commands():
        section = listed.partition(f"\n## evervec {name}\n")[2].partition("\n## ")[0]
        example = section.partition("For example:")[2]
        assert re.search(rf"\nevervec .*?{name}\b|\n\w.*evervec {name}", example), (
            f"{name}: no example"
        )
        for option in command.params:
            if not getattr(option, "hidden", False) and option.param_type_name == "option":
                assert all(f"{spelling}" in section for spelling in option.opts), (name, option)
                assert getattr(option, "help", None), f"{name} {option.opts[0]} has no help"


def test_every_route_and_schema_is_listed_with_a_meaning() -> None:
    listed = made("http")
    described = http_api.openapi()
    for method, path, operation in http_api.operations(described):
        assert f"### {method} {path}\n" in listed
        assert operation.get("summary"), (method, path)
        for parameter in operation.get("parameters", ()):
            assert http_api.meaning_of(parameter), (path, parameter)
    for name in described["components"]["schemas"]:
        assert f"### {name}\n" in listed


def test_every_metric_is_listed_with_its_labels() -> None:
    listed = {name: (labels, meaning) for name, _, labels, meaning in metrics.families()}
    assert {"evervec_jobs", "evervec_http_requests_total", "evervec_store_up"} <= set(listed)
    for each in (*COUNTERS, *HISTOGRAMS):
        labels, meaning = listed[each.name]
        assert labels == ", ".join(f"`{label}`" for label in each.labels)
        assert meaning == each.meaning


def test_every_error_has_an_anchor_that_its_type_leads_to() -> None:
    listed = made("errors")
    classes = [error.__name__ for error in error_classes()]
    public = [name for name in evervec.__all__ if python_api.page_of(name) == "errors"]
    assert set(public) <= set(classes)
    for name in classes:
        assert f"\n## {name}\n" in listed
        assert f"`urn:evervec:{name}`" in listed
        assert f"(#{name.lower()})" in listed


def test_every_alert_rule_is_listed() -> None:
    listed = made("alerts")
    assert len(alerts.rules()) >= 10
    for rule in alerts.rules():
        assert f"[{rule['alert']}](#" in listed
