"""The OpenAPI tells the whole truth: schemathesis asks everything that it describes, with keys
and without, and meets no answer that it does not name."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from pydantic import BaseModel
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

import evervec
from evervec.model import findings, reports, usage
from evervec.model.jobs import Attempt, Job, Ticket
from evervec.model.records import Hit, Record, Version
from evervec.server import audit
from evervec.server import keys as evervec_keys
from evervec.server.rate_limits import MemoryLimiter
from evervec.server.routes import jobs, keys, queue, records, search, versions
from evervec.server.routes.docs import Documentation
from support.service import Served, serving
from support.world import fail_for_good

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
]
"""No mistake of the service's own, and nothing that it does not describe."""


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return (
        value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()
    )


LINE = st.fixed_dictionaries(
    {"text": st.text(max_size=20)},
    optional={
        "kind": st.sampled_from(["note", "page", "", 7]),
        "id": st.one_of(st.integers(0, 3), st.text(max_size=3)),
        "metadata": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        "weight": st.floats(allow_nan=False),
    },
)
schemathesis.openapi.format(
    "ndjson", st.lists(LINE, max_size=4).map(lambda lines: "\n".join(map(json.dumps, lines)))
)

WHO = (None, "reader", "writer", "admin", "token")
"""nobody, each role, and a token of a writer's for one kind"""


QUICK = settings(
    max_examples=len(WHO),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    derandomize=True,
    database=None,
)
THOROUGH = settings(QUICK, max_examples=200, derandomize=False)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a record, a dead letter, and a key for each role."""
    path: Path = tmp_path_factory.mktemp("openapi") / "store.db"
    with evervec.open(path, embedder="hashing") as ev, serving() as serve:
        ev.add("note", "Tea is grown on hills in Assam.", id="tea")
        ev.process_all()
        ev.add("note", "bad", id="bad")
        fail_for_good(ev, "bad")
        yield serve(ev, limiter=MemoryLimiter(rate=1e6, burst=1_000_000))


def keys_of(served: Served) -> list[str | None]:
    found: dict[str | None, str | None] = {
        role: served.key(role=role) for role in WHO if role not in (None, "token")
    }
    asked = {"role": "writer", "kinds": ["note"], "expires_in": 3600}
    made = served.http(found["writer"]).post("/v1/tokens", json=asked)
    found["token"] = made.json()["token"]
    return [found.get(who) for who in WHO]


def ask_everything(served: Served, chosen: settings, *, at_once: int = len(WHO)) -> None:
    """Each operation with bodies and parameters that fit its description, and that do not; each
    of them with so many of `WHO`, who take turns."""
    turns = cycle(keys_of(served))
    described = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    for found in described.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        for mode in GenerationMode:

            @chosen
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case[Any]) -> None:
                for key in islice(turns, at_once):
                    headers = {"Authorization": f"Bearer {key or 'none'}"}
                    case.call_and_validate(headers=headers, checks=CHECKS, timeout=60)

            with suppress(Unsatisfiable):  # not everything can be asked wrongly
                ask()


def test_every_answer_is_described(served: Served) -> None:
    ask_everything(served, QUICK, at_once=1)


@pytest.mark.long
def test_every_answer_is_described_however_often_it_is_asked(served: Served) -> None:
    ask_everything(served, THOROUGH)


SHOWN = {
    records.RecordOut: Record,
    records.TicketOut: Ticket,
    search.HitOut: Hit,
    jobs.JobOut: Job,
    records.AttemptOut: Attempt,
    keys.KeyOut: evervec_keys.Key,
    keys.EntryOut: audit.Entry,
    queue.GateOut: reports.Gate,
    queue.SpendOut: usage.Spend,
    queue.StatsOut: reports.Stats,
    versions.VersionOut: Version,
    versions.TallyOut: findings.Tally,
    versions.VerifyOut: findings.VerifyReport,
    versions.MigrationOut: reports.MigrationStatus,
}
INSIDE = {
    Job: {"token", "version", "record", "worker", "crashes"},
    Hit: {"row"},
    evervec_keys.Key: {"parent", "kinds"},
}


@pytest.mark.parametrize("shape", SHOWN)
def test_an_answer_shows_all_of_its_value_but_what_stays_inside(shape: type[BaseModel]) -> None:
    value = SHOWN[shape]
    known = {field.name for field in fields(value)} - INSIDE.get(value, set())
    told_later = {"status", "error"} if value is Ticket else set()
    assert shape.model_fields.keys() == known | told_later


def test_operations_have_names_for_generated_clients_and_references_lead_somewhere(
    served: Served,
) -> None:
    described = served.http().get("/openapi.json").json()
    names = [
        operation["operationId"]
        for path in described["paths"].values()
        for operation in path.values()
    ]
    assert len(names) == len(set(names)) > 40
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+){0,3}", name) for name in names)
    known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(described))) <= known


def test_the_document_is_made_once_for_everybody_and_not_in_the_event_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, describe, threads = served.http(), served.app.openapi, []
    served.app.state.documentation = Documentation(served.app)

    def watched() -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return describe()

    monkeypatch.setattr(served.app, "openapi", watched)
    first = http.get("/openapi.json")
    (thread,) = threads
    assert thread.startswith("evervec-service"), "the first request of a stranger stops all others"
    monkeypatch.setattr(served.app, "openapi", lambda: pytest.fail("made again"))
    again = http.get("/openapi.json")
    assert (first.status_code, first.headers["content-type"]) == (200, "application/json")
    assert again.content == first.content
    assert "servers" not in first.json()


def test_a_document_that_could_not_be_made_is_made_for_the_next_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.app.state.documentation = Documentation(served.app)

    def fail() -> dict[str, Any]:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(served.app, "openapi", fail)
        assert served.http().get("/openapi.json").status_code == 500
    assert served.http().get("/openapi.json").status_code == 200


def test_every_route_has_a_summary_examples_or_shapes_and_errors(served: Served) -> None:
    described = served.http().get("/openapi.json").json()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            answers = operation["responses"]
            good = [status for status in answers if status.startswith("2")]
            assert good, (method, path)
            assert all(answers[status].get("content") for status in good), (method, path)
            if path.startswith("/v1"):
                assert {"401", "403", "422", "429"} <= answers.keys(), (method, path)
                assert operation["security"], (method, path)
            if "requestBody" in operation:
                assert operation["requestBody"]["content"]
    assert served.http().get("/docs").status_code == 200
