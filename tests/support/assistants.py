"""Assistants under test: the official SDK's client, driven without `async` in the tests."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mcp_types as types
import numpy as np
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.shared._httpx_utils import create_mcp_http_client
from numpy.typing import NDArray

from evervec import Evervec, InvalidInput
from evervec.integrations.mcp.records import Access, LibraryRecords
from evervec.integrations.mcp.server import make_server
from mcp import Client, StdioServerParameters


class Assistant:
    """One connected client."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self._client = client

    def tools(self) -> dict[str, types.Tool]:
        return {tool.name: tool for tool in self._portal.call(self._client.list_tools).tools}

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured answer of a tool. The client checks it against the tool's schema."""
        result = self._portal.call(self._client.call_tool, tool, arguments)
        assert isinstance(result, types.CallToolResult)
        assert not result.is_error, result.content
        return result.structured_content

    def complaint(self, tool: str, **arguments: Any) -> str:
        """The error of a call that fails."""
        result = self._portal.call(self._client.call_tool, tool, arguments)
        assert isinstance(result, types.CallToolResult)
        assert result.is_error, result.structured_content
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        return content.text

    def resource(self, uri: str) -> str:
        (content,) = self._portal.call(self._client.read_resource, uri).contents
        assert isinstance(content, types.TextResourceContents)
        return content.text

    def prompt(self, name: str, **arguments: str) -> str:
        (message,) = self._portal.call(self._client.get_prompt, name, arguments).messages
        assert isinstance(message.content, types.TextContent)
        return message.content.text

    def ask(self, method: str) -> Any:
        """A method of the SDK's client without arguments."""
        return self._portal.call(getattr(self._client, method))


@contextmanager
def connected(
    target: Server[Any] | StdioServerParameters | str, mode: Any = "auto", key: str = ""
) -> Iterator[Assistant]:
    """An assistant in memory, over a process's standard input and output, or over HTTP."""
    with start_blocking_portal() as portal:
        if isinstance(target, str):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            http = create_mcp_http_client(headers=headers)
            with portal.wrap_async_context_manager(http):
                client = Client(streamable_http_client(target, http_client=http), mode=mode)
                with portal.wrap_async_context_manager(client):
                    yield Assistant(portal, client)
        else:
            with portal.wrap_async_context_manager(Client(target, mode=mode)) as client:
                yield Assistant(portal, client)


def server_of(
    ev: Evervec, *, writes: bool = True, kinds: tuple[str, ...] | None = None, **described: str
) -> Server[Any]:
    """The MCP server for an open store."""
    access = Access(LibraryRecords(ev, 30.0), writes, kinds)
    return make_server(lambda _: access, described)


def command(*arguments: str, **environ: str) -> StdioServerParameters:
    """`evervec` as an assistant starts it."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "evervec", *arguments], env=environ
    )


class PickyEmbedder:
    """Refuses texts with "poison", and names its customer as a provider might."""

    name, model, dimensions, max_batch = "picky", "picky-4", 4, 8
    complaint = "host db-7.internal: customer 12345 sent a text that is too strange"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if bad := [place for place, text in enumerate(texts) if "poison" in text]:
            raise InvalidInput(bad, self.complaint)
        return np.ones((len(texts), 4), np.float32)
