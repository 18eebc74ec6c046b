"""Live pages under load: shared, bounded, and no burden on others."""

import gc
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import evervec
from evervec import Evervec
from evervec.server.dashboard import live
from evervec.server.dashboard.live import Live, _Feed
from support.dashboard import events, person
from support.processes import until
from support.service import Serve, Served


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live pages that are rendered as often as they can be."""
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(live, "_SHARE", 100.0)


def feeds(served: Served) -> Live:
    found: Live = served.app.state.live
    return found


def test_people_who_see_the_same_share_one_feed(served: Served) -> None:
    reader, other = (person(served, served.key("a", "reader", agent)) for agent in ("r", "s"))
    writer = person(served, served.key("a", "writer", "w"))
    stranger = person(served, served.key("b", "reader", "r"))
    with ExitStack() as streams:
        for someone in (reader, other, writer, stranger):
            assert next(events(streams.enter_context(someone.watch())))
        assert len(feeds(served)._feeds) == 3


def test_a_live_page_carries_no_token_of_anybody(served: Served) -> None:
    someone = person(served, served.key(role="admin"))
    with someone.watch() as stream:
        assert someone.token not in next(events(stream))


@pytest.mark.usefixtures("quick")
def test_a_feed_ends_with_its_last_watcher(served: Served) -> None:
    someone = person(served)
    with someone.watch() as stream:
        assert next(events(stream))
        assert feeds(served)._feeds
    until(lambda: not feeds(served)._feeds, "the feed to end")
    assert not feeds(served)._watchers


@pytest.mark.usefixtures("quick")
def test_a_change_is_sent_and_nothing_else(ev: Evervec, served: Served) -> None:
    with person(served).watch() as stream:
        following = events(stream)
        first = next(following)
        ev.add("note", "new", id="1")
        assert next(following) != first


def test_who_joins_a_feed_gets_nothing_older_than_the_own_page(
    ev: Evervec, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LEAST_SECONDS", 1.0)
    first, second = person(served), person(served)
    with first.watch() as stream:
        before = next(events(stream))
        ev.add("note", "new", id="1")  # within the second in which nothing is rendered again
        with second.watch() as later:
            assert next(events(later)) != before


def test_a_store_that_fails_is_said_and_recovers(
    ev: Evervec, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(live, "MOST_SECONDS", 0.01)
    someone = person(served)
    with someone.watch() as stream:
        following = events(stream)
        shown = next(following)

        def fail(*_: object, **__: object) -> None:
            raise evervec.StoreError("the disk at /secret is gone")

        with monkeypatch.context() as broken:
            broken.setattr(ev.store, "mark", fail)
            broken.setattr("evervec.server.view.View.run", fail)
            assert next(following) == "cannot be updated at present"
        assert next(following) == shown


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Evervec]:
    """A store whose service has few places."""
    with evervec.open(
        tmp_path / "store.db", embedder="hashing", server_tenant_requests=8, server_requests=24
    ) as ev:
        yield ev


def test_live_pages_leave_places_for_requests(narrow: Evervec, serve: Serve) -> None:
    served = serve(narrow)
    greedy = served.key("greedy", "reader")
    other = person(served, served.key("other", "reader"))
    someone = person(served, greedy)
    with ExitStack() as streams:
        opened = [streams.enter_context(someone.watch(f"/?n={n}")) for n in range(6)]
        assert [stream.status_code for stream in opened] == [200] * 4 + [503] * 2
        assert someone.get("/").status_code == 200
        assert streams.enter_context(other.watch()).status_code == 200
    served.close()


def test_hundreds_of_live_pages_of_one_key_leave_others_alone(served: Served) -> None:
    """The settings' defaults: 500 requests of a tenant, half of them live pages."""
    greedy = person(served, served.key("greedy", "admin"))
    other = person(served, served.key("other", "reader"))
    session = greedy.http.cookies["evervec_session"]
    with ExitStack() as sockets:
        opened = [
            sockets.enter_context(closing(listening(served, session, n % 50))) for n in range(300)
        ]
        until(lambda: feeds(served)._watchers["greedy"] == 250, "the live pages to open")
        assert other.get("/").status_code == 200
        with other.watch() as stream:
            assert next(events(stream))
        assert greedy.get("/").status_code == 200
        assert len(opened) == 300
    until(lambda: not feeds(served)._watchers["greedy"], "the live pages to end")


def listening(served: Served, session: str, number: int, buffer: int = 0) -> socket.socket:
    """A connection that asks for a live page, and reads nothing."""
    host, port = urlsplit(served.url).netloc.split(":")
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.connect((host, int(port)))
    made.sendall(
        f"GET /?n={number} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n"
        f"Cookie: evervec_session={session}\r\n\r\n".encode()
    )
    return made


def test_a_reader_that_reads_nothing_takes_no_memory(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a page that changes all the time, a slow reader misses some states; they are not kept."""
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.001)
    monkeypatch.setattr(live, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(live, "_SHARE", 1000.0)
    count = 0

    def large(*_: object) -> str:
        nonlocal count
        count += 1
        return f"{count}{'x' * 200_000}"

    monkeypatch.setattr("evervec.server.dashboard.page_routes.render_live", large)
    someone = person(served, served.key(role="admin"))
    session = someone.http.cookies["evervec_session"]
    tracemalloc.start()
    try:
        with closing(listening(served, session, 1, buffer=4096)):
            until(lambda: count >= 50, "50 states of the page")
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            until(lambda: count >= 150, "100 more, 20 MB in all")
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] - before < 5_000_000
    finally:
        tracemalloc.stop()


def test_pages_of_one_tenant_do_not_slow_those_of_another(served: Served) -> None:
    """All share the time for rendering: tenants equally, and the pages of a tenant its part."""
    shared = feeds(served)
    shared._open.update({"greedy": 60, "other": 1})
    greedy, other = (shared._pause(_Feed(tenant), 0.05) for tenant in ("greedy", "other"))
    assert other == pytest.approx(0.05 * 2 / 0.03)
    assert greedy == 60.0
    shared._open.clear()


def test_a_tenant_has_a_bounded_number_of_different_pages(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_FEEDS", 3)
    someone, other = (person(served, served.key(tenant, "reader")) for tenant in "ab")
    with ExitStack() as streams:
        for number in (1, 2, 3):
            assert streams.enter_context(someone.watch(f"/?n={number}")).status_code == 200
        until(lambda: feeds(served)._open["a"] == 3, "the pages to open")
        assert streams.enter_context(someone.watch("/?n=4")).status_code == 503
        assert streams.enter_context(someone.watch("/?n=3")).status_code == 200, "the same page"
        assert streams.enter_context(other.watch("/?n=4")).status_code == 200
    until(lambda: not feeds(served)._open, "the pages to close")


def test_pages_that_are_opened_at_the_same_time_are_not_more_than_one_tenant_may_have(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passed the check before the first began."""
    monkeypatch.setattr(live, "MOST_FEEDS", 3)
    monkeypatch.setattr(Live, "check", lambda *_: None)
    someone = person(served, served.key("a", "reader"))
    with ExitStack() as streams:
        opened = [events(streams.enter_context(someone.watch(f"/?n={n}"))) for n in (1, 2, 3)]
        assert all(next(each) for each in opened)
        late = streams.enter_context(someone.watch("/?n=4"))
        assert "too many pages" in next(events(late))
        assert feeds(served)._open["a"] == 3


@pytest.mark.usefixtures("quick")
def test_a_page_that_is_too_long_is_not_kept(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONGEST", 100)
    with person(served).watch() as stream:
        assert next(events(stream)) == "is too long to be updated: load it again"
        assert all(len(feed.event) < 200 for feed in feeds(served)._feeds.values())


def test_nothing_is_kept_for_nobody(served: Served) -> None:
    with person(served).watch() as stream:
        following = events(stream)
        assert next(following)
        (feed,) = feeds(served)._feeds.values()
        assert feed.event
    until(lambda: not feed.watchers, "the watcher to go")
    feed.publish(b"later", 1)
    assert feed.event == b""
