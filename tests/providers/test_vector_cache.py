"""Vectors of texts that other records have too cost no call, within a set size."""

from collections.abc import Callable

import numpy as np

from evervec import Evervec
from support.provider import ProviderServer
from support.world import KIND, add_all, held, work

Open = Callable[..., Evervec]


def embeds(ev: Evervec, server: ProviderServer, *texts: str, kind: str = KIND) -> list[str]:
    """Add records with these texts, and tell which of them the provider was asked for."""
    server.forget()
    list(ev.add_many(kind, ({"text": text} for text in texts)))
    assert work(ev).succeeded == len(texts)
    return sorted(text for call in server.calls() for text in call.texts or ())


def test_the_same_text_in_another_record_costs_no_call(
    opened: Open, server: ProviderServer
) -> None:
    ev = opened(vector_cache_mb=1)
    assert embeds(ev, server, "shared", "own") == ["own", "shared"]
    assert embeds(ev, server, "shared", "new") == ["new"]
    assert embeds(ev, server, "shared", kind="task") == []
    assert server.seen().calls == 0
    assert ev.queue.stats().spent_today[0].calls == 2
    assert ev.verify().clean


def test_a_vector_from_the_cache_is_the_one_that_the_provider_gave(
    opened: Open, server: ProviderServer
) -> None:
    ev = opened(vector_cache_mb=1)
    ev.add(KIND, "shared", id="1")
    ev.process_all()
    ev.add(KIND, "shared", id="2")
    ev.process_all()
    one, two = ev.search("shared", mode="semantic")
    assert one.similarity == two.similarity
    assert one.similarity is not None
    assert np.isclose(one.similarity, 1.0)
    assert len(held(ev)) == 2


def test_a_record_says_what_was_reused(opened: Open, server: ProviderServer) -> None:
    ev = opened(vector_cache_mb=1)
    ev.add(KIND, "shared", id="1")
    ev.process_all()
    ev.add(KIND, "shared", id="2")
    ev.process_all()
    first, second = (ev.queue.history(KIND, id)[0] for id in "12")
    assert (first.chunks_embedded, first.chunks_reused) == (1, 0)
    assert (second.chunks_embedded, second.chunks_reused, second.tokens) == (0, 1, 0)


def test_openings_share_it_and_it_outlives_them(opened: Open, server: ProviderServer) -> None:
    ev = opened(vector_cache_mb=1)
    embeds(ev, server, "shared")
    ev.close()
    assert embeds(opened(vector_cache_mb=1), server, "shared") == []


def test_a_text_under_another_title_is_another_text(opened: Open, server: ProviderServer) -> None:
    ev = opened(vector_cache_mb=1)
    ev.add(KIND, "shared", id="1", title="one")
    ev.process_all()
    ev.add(KIND, "shared", id="2", title="two")
    ev.add(KIND, "shared", id="3", title="one")
    ev.process_all()
    assert server.seen().embedded == 2


def test_a_text_that_failed_is_not_kept(opened: Open, server: ProviderServer) -> None:
    ev = opened(vector_cache_mb=1, max_attempts=1)
    server.behave(nan="poison")
    add_all(ev, KIND, "good", "poison")
    assert ev.process_all().failed == 1
    server.behave(nan=None)
    assert embeds(ev, server, "poison", kind="task") == ["poison"]


def test_the_oldest_go_when_it_is_full(opened: Open, server: ProviderServer) -> None:
    ev = opened(vector_cache_mb=1, dimensions=1024)  # a little less than 256 vectors
    texts = [f"text {n}" for n in range(300)]
    for start in range(0, 300, 50):
        embeds(ev, server, *texts[start : start + 50])
    assert embeds(ev, server, *texts[-200:]) == []
    assert embeds(ev, server, *texts[:50]) == sorted(texts[:50])


def test_without_it_the_same_text_is_embedded_for_each_batch(
    opened: Open, server: ProviderServer
) -> None:
    ev = opened()
    for _ in range(2):
        assert embeds(ev, server, "shared", "shared") == ["shared"]
