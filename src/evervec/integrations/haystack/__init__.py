"""Haystack: a document store and a retriever over evervec.

Documents are records of one kind: `documents` converts them, `filters` converts filters. All calls go
through `integrations.documents` to the facade.
"""

from __future__ import annotations

from evervec.errors import EvervecError
from evervec.runtime.packages import install_command

try:
    import haystack  # noqa: F401
except ImportError as error:
    raise EvervecError(
        f"Haystack is not installed: {install_command('evervec[haystack]')}"
    ) from error

from evervec.integrations.haystack.retriever import EvervecRetriever
from evervec.integrations.haystack.store import EvervecDocumentStore

__all__ = ["EvervecDocumentStore", "EvervecRetriever"]
