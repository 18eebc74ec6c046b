"""An embedding provider on a loopback port: the wire formats of OpenAI and Ollama, with faults.

    with ProviderServer(Behaviour(latency=0.05, slots=8)) as server:
        client = openai.OpenAI(base_url=server.openai_url, api_key="any")
        server.behave(hang="poison")  # from now on, for calls with a text that contains it

What it does wrong is a `Behaviour`, swapped whole at any time; what it saw is in `seen()`,
`calls()` and `times_embedded()`. `provider_process` runs the same server in a process of its own.

A text's vector depends on nothing but the text (`vector`), and a shorter one is the beginning of
a longer one made unit length again, as with the models that can be cut; with `words`, texts that
share words are near each other. A token is four bytes (`count_tokens`). Messages and statuses are
those of the services, where they are known.
"""

from support.provider.behaviour import EVERY_CALL, EVERY_TEXT, Behaviour
from support.provider.formats import go_duration
from support.provider.http import Exchange, Http, as_json
from support.provider.log import Call, Log, Seen
from support.provider.server import ProviderServer
from support.provider.vectors import count_tokens, vector, vectors

__all__ = [
    "EVERY_CALL",
    "EVERY_TEXT",
    "Behaviour",
    "Call",
    "Exchange",
    "Http",
    "Log",
    "ProviderServer",
    "Seen",
    "as_json",
    "count_tokens",
    "go_duration",
    "vector",
    "vectors",
]
