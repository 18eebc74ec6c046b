"""Change streams: the messages of a log become records of a kind.

`message` says what a stream gives, `mapping` and `debezium` how a message becomes a change, and
`follower` saves the changes before it commits their positions. `integrations.kafka` and
`integrations.nats` are the sources.
"""

from __future__ import annotations

from evervec.integrations.streams.failures import Retried, retry
from evervec.integrations.streams.follower import Followed, Follower
from evervec.integrations.streams.mapping import MessageMapping

__all__ = ["Followed", "Follower", "MessageMapping", "Retried", "retry"]
