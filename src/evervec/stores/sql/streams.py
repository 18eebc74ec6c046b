"""Change streams that are followed: their definitions, progress and set-aside messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from evervec.model.basics import as_datetime
from evervec.model.streams import FailedMessage, Stream, StreamProgress, StreamState
from evervec.stores.sql.engine import Part


class Streams(Part):
    """The part of the store that followers share."""

    def follow(self, stream: Stream) -> None:
        values = (stream.tenant, stream.name, stream.kind, stream.definition)
        self.write(self.sql.follow_stream, *values, durable=True)

    def find(self, tenant: str, name: str) -> Stream | None:
        row = self.read_one(self.sql.stream, tenant, name)
        return Stream(*row) if row else None

    def forget(self, tenant: str, name: str) -> bool:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.forget_stream_parts, (tenant, name))
            conn.execute(self.sql.forget_failed, (tenant, name))
            gone: int = conn.execute(self.sql.forget_stream, (tenant, name)).rowcount
        return gone == 1

    def states(self, tenant: str | None) -> list[StreamState]:
        parts: dict[tuple[str, str], list[StreamProgress]] = defaultdict(list)
        with self.db.reading() as conn:
            found = conn.execute(self.sql.streams, (tenant,)).fetchall()
            for owner, name, part, position, lag, sent, seen in (
                conn.execute(self.sql.stream_parts, (tenant,)).fetchall() if found else ()
            ):
                progress = StreamProgress(part, position, lag, _time(sent), _time(seen))
                parts[owner, name].append(progress)
        return [
            StreamState(owner, name, kind, tuple(parts[owner, name]), failed)
            for owner, name, kind, failed in found
        ]

    def report(self, tenant: str, name: str, parts: Sequence[StreamProgress]) -> None:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            for part in sorted(parts, key=lambda part: part.part):
                values = (tenant, name, part.part, part.position, part.lag, _seconds(part.sent_at))
                conn.execute(self.sql.report_stream, (*values, now))

    def set_aside(self, tenant: str, messages: Sequence[FailedMessage]) -> None:
        with self.db.writing(durable=True) as conn:
            now = self.engine.moment(conn)
            for m in messages:
                place = (tenant, m.stream, m.part, m.position, m.size, _seconds(m.sent_at), now)
                conn.execute(self.sql.set_aside, (*place, m.reason, m.headers, m.key, m.content))

    def failed(
        self, tenant: str, name: str | None = None, after: int = 0, limit: int = 100
    ) -> list[FailedMessage]:
        found = self.read(self.sql.failed_messages, tenant, name, after, limit)
        return [
            FailedMessage(
                stream, part, position, reason, key, content, size, headers, _time(sent),
                _time(failed), number,
            )
            for (
                stream, part, position, reason, key, content, size, headers, sent, failed, number,
            ) in found
        ]  # fmt: skip

    def count_failed(self, tenant: str, name: str, most: int) -> int:
        (count,) = self.read_one(self.sql.count_failed_messages, tenant, name, most)
        return int(count)

    def any_failed(self) -> bool:
        return self.read_one(self.sql.any_failed_message) is not None

    def discard(self, tenant: str, numbers: Sequence[int]) -> int:
        return self.write(
            self.sql.discard_failed, tenant, self.engine.listed(numbers), durable=True
        )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else as_datetime(seconds)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
