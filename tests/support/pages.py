"""Pages of the dashboard as a browser without scripts reads them, and people who act by them."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import httpx

from support.dashboard import Person
from support.service import Served

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;{{7*7}}\u202eevil"
"""text that must stay text wherever a page shows it"""


class Shown(HTMLParser):
    """A page as a browser reads it: its tags, its text and its forms."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.marked: list[str] = []
        self._text: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "mark":
            self.marked.append(data)
        self._text.append(data)

    @property
    def links(self) -> list[str]:
        return [attrs["href"] for tag, attrs in self.tags if tag == "a" and "href" in attrs]

    @property
    def actions(self) -> set[str]:
        """The paths of the forms that change something."""
        return {
            attrs["action"]
            for tag, attrs in self.tags
            if tag == "form" and attrs.get("method") == "post"
        }

    @property
    def buttons(self) -> set[str]:
        return {attrs["value"] for tag, attrs in self.tags if tag == "button" and "value" in attrs}

    def value_of(self, name: str) -> str:
        """What a field holds."""
        return next(attrs.get("value", "") for _, attrs in self.tags if attrs.get("name") == name)

    def assert_tame(self) -> None:
        """No text of anybody's became markup."""
        (script,) = [attrs for tag, attrs in self.tags if tag == "script"]
        assert script["src"].endswith("/dashboard.js")
        images = [attrs["src"] for tag, attrs in self.tags if tag == "img"]
        assert all(source.endswith("/icon.svg") for source in images), images
        for tag, attrs in self.tags:
            assert not [name for name in attrs if name == "style" or name.startswith("on")], tag
            for name in ("href", "src", "action"):
                assert not re.match(r"\s*(javascript|data):", attrs.get(name, ""), re.IGNORECASE), (
                    attrs
                )


def read(person: Person, path: str, status: int = 200, **params: Any) -> Shown:
    """A page, which is as every page must be."""
    answer = person.get(path, **params)
    assert answer.status_code == status, answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    shown = Shown(answer.text)
    shown.assert_tame()
    return shown


class Operator(Person):
    """Somebody who reads pages and sends their forms, signed in if keys are needed."""

    def __init__(self, served: Served, key: str | None = None) -> None:
        super().__init__(served.http())
        if key is not None:
            self.sign_in(key)

    def read(self, path: str, status: int = 200, **params: Any) -> Shown:
        return read(self, path, status, **params)

    def act(self, path: str, **fields: Any) -> str:
        """Send a form that is accepted, and return what the next page says was done."""
        answer = self.send(path, **fields)
        assert answer.status_code == 303, answer.text
        shown = self.http.get(answer.headers["location"])
        found = re.search(r'<p class="notice[^"]*" role="\w+">(.*?)</p>', shown.text, re.DOTALL)
        assert found is not None, shown.text
        return Shown(found[1]).text

    def rows(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """The rows of a page's list."""
        asked = httpx.URL(path).copy_merge_params({**params, "format": "ndjson"})
        answer = self.http.get(asked)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]
