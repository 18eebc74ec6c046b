"""What a store knows about a stream: how it is followed, and which stream it was.

Versions that are positions can only be compared within one stream. A stream that was deleted and
created again counts from the beginning, so its changes would look old: it is refused.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace

from evervec.errors import InvalidArgument
from evervec.facade import Evervec
from evervec.integrations.streams.mapping import MessageMapping
from evervec.integrations.streams.message import Source

log = logging.getLogger("evervec")


@dataclass(frozen=True)
class Registration:
    """What the store keeps about a stream."""

    mapping: MessageMapping
    identity: str = ""
    """of the stream, as its source says; empty: not known"""

    def dump(self) -> str:
        return json.dumps({"mapping": asdict(self.mapping), "identity": self.identity})

    @classmethod
    def load(cls, text: str) -> Registration:
        read = json.loads(text)
        return cls(MessageMapping.of(**read["mapping"]), read["identity"])


def register(ev: Evervec, name: str, mapping: MessageMapping) -> Registration:
    """Save what is followed, which keeps the versions of deletes. Versions by another rule cannot be
    compared with those that the kind's records have: it is refused."""
    known = ev.streams.find(name)
    if known is None:
        found = Registration(replace(mapping, epoch=ev.streams.epoch(mapping.kind)))
    else:
        before = Registration.load(known.definition)
        _check_same_rules(name, before.mapping, mapping)
        found = Registration(replace(mapping, epoch=before.mapping.epoch), before.identity)
        if found == before:
            return found
    ev.streams.follow(name, mapping.kind, found.dump())
    return found


def _check_same_rules(name: str, before: MessageMapping, now: MessageMapping) -> None:
    if before.kind != now.kind:
        raise InvalidArgument(
            f"the stream {name!r} is followed as kind {before.kind!r}: give this one another name"
        )
    if before.version != now.version:
        raise InvalidArgument(
            f"the stream {name!r} was followed with version={before.version!r}, which cannot be "
            f"compared with {now.version!r}: keep it, or follow the stream from its beginning into "
            "another kind"
        )


def admit(ev: Evervec, name: str, registration: Registration, source: Source) -> None:
    """Check that a stream that was opened is the one whose positions the records have. Raises
    `InvalidArgument`, or `SourceUnavailable`."""
    identity = source.identity()
    state = next((state for state in ev.streams.states() if state.name == name), None)
    positions = {part.part: part.position for part in state.parts} if state else {}
    changed = bool(registration.identity) and identity != registration.identity
    if changed or source.is_behind(positions):
        check_replaceable(name, registration.mapping)
        log.warning("the stream %s was created again: its positions begin again", name)
    if identity != registration.identity:
        known = replace(registration, identity=identity)
        ev.streams.follow(name, registration.mapping.kind, known.dump())


def check_replaceable(name: str, mapping: MessageMapping) -> None:
    """Refuse a stream that was created again, if its positions order changes."""
    if mapping.may_use_positions:
        raise InvalidArgument(
            f"this is another stream than {name!r} was: it was created again, or restored, and its "
            "positions begin again, so its changes would count as old. To take them as newer than "
            f"all before, run `evervec follow --forget {name}` and follow it again; or follow it "
            "under another --name, with a --version that the source gives"
        )
