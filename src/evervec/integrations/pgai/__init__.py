"""Import from pgai: attaches its tables, and reuses its vectors without embedding again."""

from __future__ import annotations

from evervec.integrations.pgai.definition import Vectorizer, vectorizers
from evervec.integrations.pgai.takeover import Report, take_over

__all__ = ["Report", "Vectorizer", "take_over", "vectorizers"]
