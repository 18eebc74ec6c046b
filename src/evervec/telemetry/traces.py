"""OpenTelemetry traces, from the caller's `add` through the queue to the index.

A record is saved with its caller's trace; the worker that embeds it continues that trace, in
whatever process it runs. Nothing happens, and OpenTelemetry is not loaded, until the program has
set it up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Marks = Mapping[str, tuple[int, int]]
"""start and end of each stage, in nanoseconds since the epoch"""


def _api() -> Any:
    """OpenTelemetry's API, if the program has set it up. Other packages load it too, and then even
    spans that nobody records take time."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    return api


def current() -> str | None:
    """The caller's trace, as a W3C `traceparent`."""
    api = _api()
    if api is None or not api.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def request(method: str, traceparent: str | None) -> Iterator[Callable[[str], object]]:
    """A span for a request, in its sender's trace unless this program is already in one. Yields a
    function that names the span, once the route is known."""
    api = _api()
    if api is None:
        yield lambda _: None
        return
    inside = api.get_current_span().get_span_context().is_valid
    parent = None if inside or traceparent is None else _parent(traceparent)
    tracer = api.get_tracer("evervec")
    with tracer.start_as_current_span(method, parent, kind=api.SpanKind.SERVER) as span:
        yield lambda route: span.update_name(f"{method} {route}")


def tell(trace: str, marks: Marks, error: str | None, **attributes: str | int) -> None:
    """Add a worker's spans for a job to a trace: the whole job, and each stage of its batch."""
    api = _api()
    if api is None:
        return
    tracer, parent = api.get_tracer("evervec"), _parent(trace)
    began = min((start for start, _ in marks.values()), default=time.time_ns())
    named = {f"evervec.{name}": value for name, value in attributes.items()}
    whole = tracer.start_span(
        "evervec job", parent, kind=api.SpanKind.CONSUMER, attributes=named, start_time=began
    )
    if error is not None:
        whole.set_status(api.Status(api.StatusCode.ERROR, error))
    inside = api.set_span_in_context(whole)
    for stage, (start, end) in marks.items():
        tracer.start_span(f"evervec {stage}", inside, start_time=start).end(end)
    whole.end(max((end for _, end in marks.values()), default=began))


def _parent(traceparent: str) -> Any:
    return _propagator().extract({"traceparent": traceparent})


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
