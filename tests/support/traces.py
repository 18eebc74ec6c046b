"""Spans that were made while a test ran, by OpenTelemetry's own in-memory exporter."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer


class Traces:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("the caller's")

    @property
    def all(self) -> Sequence[ReadableSpan]:
        """Those that ended, in that order."""
        return self._exporter.get_finished_spans()

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """By name, those that ended; the last of each."""
        return {span.name: span for span in self.all}

    def above(self, name: str) -> list[str]:
        """The span of that name and those around it, up to the first."""
        by_id = {s.context.span_id: s for s in self.spans.values() if s.context}
        found, span = [], self.spans.get(name)
        while span is not None:
            found.append(span.name)
            span = by_id.get(span.parent.span_id) if span.parent else None
        return found

    @property
    def ids(self) -> set[int]:
        """Of the traces that the spans are of."""
        return {span.context.trace_id for span in self.spans.values() if span.context}


@contextmanager
def traced() -> Iterator[Traces]:
    """A provider of the test's own, in place of the process's one and only."""
    traces = Traces()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opentelemetry.trace.get_tracer", traces.provider.get_tracer)
        patch.setattr("opentelemetry.trace.get_tracer_provider", lambda: traces.provider)
        yield traces
