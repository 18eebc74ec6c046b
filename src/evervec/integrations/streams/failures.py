"""Set-aside messages are tried again, when their cause was removed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evervec.errors import InvalidArgument
from evervec.facade import Evervec
from evervec.integrations.streams.follower import ChangeWriter
from evervec.integrations.streams.message import Message
from evervec.integrations.streams.registration import Registration

_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Retried:
    """The outcome of a retry."""

    retried: int
    """messages that are saved now, or that a newer change made obsolete"""
    failed: int
    """messages that are still set aside"""


def retry(ev: Evervec, name: str) -> Retried:
    """Try the set-aside messages of a stream again, as the stream is followed now. A message whose
    record has changed since is dropped, because the later change counts."""
    streams = ev.streams
    stream = streams.find(name)
    if stream is None:
        known = ", ".join(state.name for state in streams.states()) or "none"
        raise InvalidArgument(f"no stream {name!r} is followed; followed are: {known}")
    writer = ChangeWriter(ev, Registration.load(stream.definition).mapping, name)
    after = saved = left = 0
    while found := streams.failed(name, after=after, limit=_AT_ONCE):
        after = found[-1].number
        _, failed = writer.save([Message.restored(m) for m in found if m.is_whole])
        failed += [replace(m, reason=_cut(m.reason)) for m in found if not m.is_whole]
        remaining = {(m.part, m.position) for m in failed}
        if failed:
            streams.set_aside(failed)
        good = [m.number for m in found if (m.part, m.position) not in remaining]
        saved += streams.discard(good) if good else 0
        left += len(failed)
    return Retried(saved, left)


_NOTE = "; only its beginning is kept: send it again, shorter"


def _cut(reason: str) -> str:
    return reason if reason.endswith(_NOTE) else reason + _NOTE
