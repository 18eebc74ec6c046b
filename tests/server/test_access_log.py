"""The access log: a line for each request, without keys, queries or bodies; and the last line."""

import io
import json
import logging
import re

import pytest

from evervec import Evervec
from evervec.server.access_log import log, showing_requests
from evervec.server.background import Background
from evervec.server.routes.health import Counts
from evervec.server.serve import farewell
from evervec.telemetry.logs import JsonFormatter
from support.processes import until
from support.service import Served


def lines(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """So many lines: a request is logged after its response is sent."""

    def found() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name == "evervec.access"]

    until(lambda: len(found()) >= count, "the lines")
    return found()


def test_a_line_says_who_asked_for_what_and_how_it_went(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    key = served.key("acme", "reader", "crawler")
    with caplog.at_level(logging.INFO, "evervec.access"):
        http = served.http(key)
        http.get("/v1/records?kind=secret", headers={"X-Request-Id": "abc"})
        lines(caplog, 1)
        http.get("/healthz")
        served.http().get("/v1/records", headers={"X-Request-Id": "def"})
        first, second = lines(caplog, 2)
    assert first.startswith("127.0.0.1 acme/crawler GET /v1/records 200 ")
    assert first.endswith(" ms (abc)")
    assert second.startswith("127.0.0.1 - GET /v1/records 401 ")
    assert "secret" not in first + second
    assert key[16:] not in first + second


def test_a_path_of_any_length_is_one_short_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "evervec.access"):
        served.http().get("/v1/" + "x" * 3000 + "%0aGET%20/forged")
        (line,) = lines(caplog, 1)
    assert len(line) < 500
    assert "\n" not in line


def test_lines_are_json_where_the_others_are(served: Served) -> None:
    root, stream = logging.getLogger(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root.addHandler(handler)
    try:
        with showing_requests():
            served.http().get("/v1/usage")
            until(lambda: "/v1/usage" in stream.getvalue(), "the line")
    finally:
        root.removeHandler(handler)
    (found,) = [json.loads(line) for line in stream.getvalue().splitlines() if "usage" in line]
    assert (found["path"], found["status"], found["tenant"]) == ("/v1/usage", 200, "default")


def test_lines_of_text_have_the_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with showing_requests():
        served.http().get("/v1/usage")
        until(lambda: "/v1/usage" in stream.getvalue(), "the line")
    assert log.propagate
    assert not log.handlers
    assert re.match(r"\d{4}-\d\d-\d\d .* default/local GET /v1/usage 200 ", stream.getvalue())


def test_the_last_line_says_what_was_served_and_what_is_left(served: Served, ev: Evervec) -> None:
    background: Background = served.app.state.background
    counts = Counts()
    assert farewell(counts, background, 7384.0) == (
        "evervec stopped after 2 h 3 min: 0 requests, 0 jobs done; everything is drained"
    )
    counts.answers["", "GET", "/v1/usage", 200] = 1233
    counts.answers["", "GET", "/v1/usage", 503] = 1
    background.aborted, background.hanging = 2, 1
    said = farewell(counts, background, 3.0)
    assert "1,234 requests (1 of them failed)" in said
    assert said.endswith("2 requests aborted, 1 worker still busy, whose jobs others take over")


def test_browsers_find_an_icon(served: Served) -> None:
    served.key()
    answer = served.http().get("/favicon.ico")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/x-icon")
    assert answer.content.startswith(b"\0\0\1\0")


def test_the_api_pages_and_the_dashboard_link_to_each_other(served: Served) -> None:
    http = served.http()
    assert '<a href="./">Dashboard</a>' in http.get("/docs").text
    assert 'href="/docs"' in http.get("/", headers={"Accept": "text/html"}).text
