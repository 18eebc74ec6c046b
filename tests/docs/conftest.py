import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once


@pytest.fixture(autouse=True)
def no_traces_from_other_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry lets a program set it up once; here each page is a program."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
