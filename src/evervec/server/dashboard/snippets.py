"""A search as a command or a program, to be copied and run elsewhere.

Each has only the arguments that differ from the defaults. Values are quoted for the shell or for
Python, because they may contain anything.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_OPTIONS = {"k": "-k", "mode": "--mode", "min_similarity": "--min-similarity",
            "min_relevance": "--min", "version": "--version"}  # fmt: skip


def as_curl(base: str, asked: Mapping[str, Any], tenant: str | None, with_key: bool) -> str:
    """A request with curl; the key is read from the environment."""
    address = f"{base}/v1/search" + (f"?tenant={quote(tenant, safe='')}" if tenant else "")
    lines = [f"curl -sS {shlex.quote(address)}"]
    if with_key:
        lines.append('-H "Authorization: Bearer $EVERVEC_KEY"')
    lines.append("-H 'Content-Type: application/json'")
    lines.append(f"--data-raw {shlex.quote(json.dumps(dict(asked), ensure_ascii=False))}")
    return " \\\n  ".join(lines)


def as_python(base: str, asked: Mapping[str, Any], tenant: str | None, with_key: bool) -> str:
    """A program with the client."""
    given = [repr(base)]
    given += ['key=os.environ["EVERVEC_KEY"]'] if with_key else []
    given += [f"tenant={tenant!r}"] if tenant else []
    rest = {name: value for name, value in asked.items() if name != "query"}
    arguments = [repr(asked["query"]), *(f"{name}={value!r}" for name, value in rest.items())]
    imports = (
        "import os\n\nfrom evervec import Client" if with_key else "from evervec import Client"
    )
    return (
        f"{imports}\n\n"
        f"with Client({', '.join(given)}) as client:\n"
        f"    for hit in client.search({', '.join(arguments)}):\n"
        "        print(hit.relevance, hit.kind, hit.id, hit.title)\n"
    )


def as_command(asked: Mapping[str, Any], evervec: str) -> str:
    """A command that opens the store itself, after `evervec` with its options."""
    words = ["search"]
    words += [f"--kind={kind}" for kind in asked.get("kind", ())]
    for name, option in _OPTIONS.items():
        if name in asked:
            words += [option, str(asked[name])] if option == "-k" else [f"{option}={asked[name]}"]
    words += [f"--filter={part}" for part in _filters(asked.get("filter") or {})]
    # behind `--`, so that a query that begins with a dash is not taken for an option
    return f"{evervec} {shlex.join([*words, '--', asked['query']])}"


def _filters(filter: Mapping[str, Any]) -> list[str]:
    """`FIELD=VALUE` for each field; a name with `=` in it is tested inside of `and`."""
    odd = {name: wanted for name, wanted in filter.items() if "=" in name}
    plain = {name: wanted for name, wanted in filter.items() if name not in odd}
    if odd:
        plain["and"] = [*plain.get("and", ()), odd]
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain.items()]
