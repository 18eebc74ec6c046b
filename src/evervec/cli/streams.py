"""The command for change streams: follow."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from evervec.cli.app import Where, command
from evervec.cli.output import facts, print_json, say, show, show_list, stream_line
from evervec.errors import InvalidArgument
from evervec.runtime.threads import stopped_by_signals, submit

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.integrations.streams import Follower

_LISTED = 1000
_SHOWN = 60
"""characters of a set-aside message in a list"""


@command(
    "follow",
    "evervec follow kafka://localhost:9092 --topic shop.articles --debezium --kind article "
    "--text title --text body",
)
@click.argument("url", required=False)
@click.option("--kind", help="Kind of the records.")
@click.option("--topic", "topics", multiple=True, help="Kafka: topic; may be repeated.")
@click.option("--group", help="Kafka: consumer group.  [one of the store's own]")
@click.option("--stream", help="NATS: stream of JetStream.")
@click.option("--subject", default=">", show_default=True, help="NATS: only these messages.")
@click.option("--durable", help="NATS: consumer.  [one of the store's own]")
@click.option(
    "--ack-seconds", default=60.0, show_default=True, type=click.FloatRange(0.1),
    help="NATS: when a killed follower's messages go to another one.",
)  # fmt: skip
@click.option("--debezium", is_flag=True, help="The messages are events of Debezium.")
@click.option(
    "--id", "id", multiple=True, help="Field of the id; may be repeated.  [id, or the key]"
)
@click.option(
    "--text", multiple=True,
    help="Field (may be repeated), or a template such as '{title}: {body}'.  [a record's text]",
)  # fmt: skip
@click.option("--title", help="Field with the title.")
@click.option("--metadata", multiple=True, help="Field to filter by; may be repeated.")
@click.option("--weight", help="Field with the weight, from 0 to 1.")
@click.option("--updated-at", help="Field with the time of the last change.")
@click.option("--op", help="Field that says whether a message is a delete.")
@click.option(
    "--version", default="auto", show_default=True,
    help="What orders the changes of a record: a field, header:NAME, offset, lsn or binlog.",
)  # fmt: skip
@click.option("--name", metavar="NAME", help="Name of the stream in the store.  [from the topic]")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help="Option of the client library; may be repeated.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(1), help="Messages saved together.  [add_batch]")
@click.option(
    "--most-failed", default=10_000, show_default=True, type=click.IntRange(0),
    help="Stop when more messages than this are set aside.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="Exit at the end of the stream.")
@click.option("--list", "listing", is_flag=True, help="List the followed streams.")
@click.option("--failed", is_flag=True, help="List messages that were set aside.")
@click.option("--retry", metavar="NAME", help="Try a stream's set-aside messages again.")
@click.option("--discard", type=int, metavar="NUMBER", help="Drop a set-aside message.")
@click.option("--forget", metavar="NAME", help="Remove a stream that is no longer followed.")
def follow(where: Where, url: str | None, kind: str | None, drain: bool, listing: bool,
           failed: bool, retry: str | None, discard: int | None, forget: str | None,
           as_json: bool, **given: Any) -> int:  # fmt: skip
    """Follow a change stream: its messages become records. Runs until SIGTERM or Ctrl-C.

    URL is kafka://HOST:PORT or nats://HOST:PORT. Positions are committed after the records are
    durable. A message that cannot become a record is set aside. Several followers share a stream.
    """
    others = (listing, failed, retry is not None, discard is not None, forget is not None)
    if (url is not None) + sum(others) != 1:
        raise click.UsageError(
            "give a URL to follow, or one of --list, --failed, --retry, --discard, --forget"
        )
    if url is None:
        with where.opened() as ev:
            return _manage(ev, listing, failed, retry, discard, forget, as_json)
    if kind is None:
        raise click.UsageError("--kind is missing: the kind of the records")
    root = logging.getLogger()
    root.setLevel(min(root.level, logging.WARNING))
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # it prints a traceback for each attempt
    with where.opened(make=True) as ev:
        follower = _follower(ev, url, kind, given)
        say(f"following {_shown(url)} into {ev.store.url}; stop with Ctrl-C", err=True)
        patience = ev.settings.drain_seconds
        with stopped_by_signals(lambda first: _stop(follower, patience if first else 0.0)):
            # in a thread: a signal is handled even while the store or the stream blocks it
            done = submit("evervec-follow", lambda: follower.run(drain=drain)).result()
    counts = (
        f"{done.messages} messages: {done.saved} saved, {done.deleted} deleted, "
        f"{done.stale} not newer, {done.failed} set aside"
    )
    show(as_json, done, counts)
    return 0


def _follower(ev: Evervec, url: str, kind: str, given: dict[str, Any]) -> Follower:
    options = dict(map(_option, given.pop("options")))
    scheme = urlsplit(url).scheme
    topics, group = list(given.pop("topics")), given.pop("group")
    stream, subject, durable, ack_seconds = (
        given.pop(name) for name in ("stream", "subject", "durable", "ack_seconds")
    )
    if scheme == "kafka":
        from evervec.integrations import kafka

        if not topics:
            raise click.UsageError("--topic is missing")
        return kafka.follower(
            ev, url, kind=kind, topic=topics, group=group, options=options, **given
        )
    if scheme in ("nats", "tls"):
        from evervec.integrations import nats

        if stream is None:
            raise click.UsageError("--stream is missing")
        return nats.follower(
            ev, url, kind=kind, stream=stream, subject=subject, durable=durable,
            ack_seconds=ack_seconds, options=options, **given,
        )  # fmt: skip
    raise InvalidArgument(
        f"cannot follow {_shown(url)}: give a URL such as kafka://localhost:9092 or "
        "nats://localhost:4222"
    )


def _option(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--option {given}: write it as NAME=VALUE")
    return name, value


def _shown(url: str) -> str:
    """A URL without its password."""
    return f"{urlsplit(url).scheme}://{urlsplit(url).netloc.rpartition('@')[2]}"


def _stop(follower: Follower, seconds: float) -> None:
    """Stop the follower. After the deadline the process ends: what it had not committed is
    repeated."""
    follower.stop()
    time.sleep(seconds)
    logging.getLogger("evervec").error("drain timed out")
    os._exit(1)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _manage(ev: Evervec, listing: bool, failed: bool, retry: str | None, discard: int | None,
            forget: str | None, as_json: bool) -> int:  # fmt: skip
    streams = ev.streams
    if listing:
        found = streams.states()
        lines = [stream_line(stream) for stream in found] or ["no stream is followed"]
        show(as_json, found, *lines)
    elif failed:
        columns: dict[str, Any] = {
            "number": "number", "stream": "stream", "part": "part", "position": "position",
            "failed": "failed_at", "reason": "reason",
            "message": lambda m: (_text(m.content) or "")[:_SHOWN],
        }  # fmt: skip
        kept = streams.failed(limit=_LISTED)
        if as_json:
            print_json(
                [{**facts(m), "key": _text(m.key), "content": _text(m.content)} for m in kept]
            )
        else:
            show_list(False, kept, "no message is set aside", columns)
    elif retry is not None:
        from evervec.integrations.streams import retry as retry_failed

        done = retry_failed(ev, retry)
        show(as_json, done, f"{done.retried} retried, {done.failed} still set aside")
        return 1 if done.failed else 0
    elif discard is not None:
        count = streams.discard([discard])
        show(as_json, {"discarded": count}, f"{count} discarded")
        return 0 if count else 1
    elif forget is not None:
        gone = streams.forget(forget)
        show(as_json, {"forgotten": gone}, f"{forget} is {'forgotten' if gone else 'not followed'}")
        return 0 if gone else 1
    return 0
