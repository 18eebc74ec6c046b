"""LlamaIndex: a retriever and a vector store over evervec.

Nodes are records of one kind: `nodes` converts them, `filters` converts metadata filters. All calls
go through `integrations.documents` to the facade.
"""

from __future__ import annotations

from evervec.errors import EvervecError
from evervec.runtime.packages import install_command

try:
    import llama_index.core  # noqa: F401
except ImportError as error:
    raise EvervecError(
        f"LlamaIndex is not installed: {install_command('evervec[llamaindex]')}"
    ) from error

from evervec.integrations.llamaindex.models import EvervecEmbedding, model_of
from evervec.integrations.llamaindex.retriever import EvervecRetriever
from evervec.integrations.llamaindex.store import EvervecVectorStore

__all__ = ["EvervecEmbedding", "EvervecRetriever", "EvervecVectorStore", "model_of"]
