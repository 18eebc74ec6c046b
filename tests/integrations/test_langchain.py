"""LangChain: documents in, documents out, and what its own suite does not ask for."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores.utils import maximal_marginal_relevance

import evervec
from evervec import Client, Evervec, InvalidArgument
from evervec.integrations.langchain import EvervecRetriever, EvervecStore, model_of
from support.service import serving

TEXTS = ["Tea grows on hills", "Coffee grows in the shade", "Rockets fly to the moon"]


def documents() -> list[Document]:
    return [
        Document(id=str(n), page_content=text, metadata={"n": n, "topic": "sky" if n == 2 else "drink"})
        for n, text in enumerate(TEXTS)
    ]  # fmt: skip


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="hashing") as ev:
        yield ev


@pytest.fixture
def store(ev: Evervec) -> EvervecStore:
    store = EvervecStore(ev)
    store.add_documents(documents())
    return store


def ids(found: list[Document]) -> list[str | None]:
    return [document.id for document in found]


def test_the_suites_of_langchain_pass() -> None:
    options = {"addopts": "", "filterwarnings": "default", "asyncio_mode": "auto",
               "asyncio_default_fixture_loop_scope": "function"}  # fmt: skip
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    file = Path(__file__).with_name("langchain_suite.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given, str(file)],
        cwd=file.parents[2], env=os.environ, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
    assert "xfailed" not in run.stdout


def test_scores_are_relevances_from_0_to_1(store: EvervecStore) -> None:
    found = store.similarity_search_with_relevance_scores("tea hills", k=3)
    assert found[0][0].id == "0"
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    good = store.similarity_search_with_relevance_scores("tea hills", k=3, score_threshold=0.3)
    assert [document.id for document, _ in good] == ["0"]


def test_filters_modes_and_vectors_are_passed_on(store: EvervecStore, ev: Evervec) -> None:
    assert set(ids(store.similarity_search("grows", filter={"topic": "drink"}))) == {"0", "1"}
    assert ids(store.similarity_search("moon", k=1, mode="text")) == ["2"]
    asked = store.embeddings.embed_query("tea hills")  # type: ignore[union-attr]
    assert ids(store.similarity_search_by_vector(asked, k=1)) == ["0"]
    diverse = store.max_marginal_relevance_search("grows", k=3, lambda_mult=0.1)
    assert set(ids(diverse)) == {"0", "1", "2"}
    assert len(store.max_marginal_relevance_search_by_vector(asked, k=2)) == 2


def test_a_retriever_finds_by_meaning_and_words_and_explains(ev: Evervec) -> None:
    store = EvervecStore(ev, explain=True)
    store.add_documents(documents())
    retriever = EvervecRetriever(store=store, k=1, options={"filter": {"topic": "sky"}})
    (found,) = retriever.invoke("a rocket")
    assert found.id == "2"
    parts = found.metadata["evervec"]["parts"]
    assert parts["words"] > 0
    assert store.as_retriever(search_kwargs={"k": 2}).invoke("tea")[0].id == "0"


def test_an_unchanged_document_costs_nothing_and_a_changed_one_replaces_it(
    store: EvervecStore, ev: Evervec
) -> None:
    seqs = {record.id: record.seq for record in ev.records()}
    assert store.add_documents(documents()) == ["0", "1", "2"]
    assert {record.id: record.seq for record in ev.records()} == seqs
    store.add_documents([Document(id="0", page_content="Cocoa is bitter")])
    assert ids(store.similarity_search("bitter cocoa", k=1)) == ["0"]
    assert store.get_by_ids(["0"])[0].page_content == "Cocoa is bitter"


def test_documents_keep_their_ids_where_none_are_given(store: EvervecStore, ev: Evervec) -> None:
    count = ev.count()
    assert store.add_documents(documents(), ids=None) == ids(documents())
    assert asyncio.run(store.aadd_documents(documents(), ids=None)) == ids(documents())
    assert ev.count() == count


def test_a_long_document_comes_back_as_its_chunk_or_whole(ev: Evervec) -> None:
    text = "\n\n".join(f"Paragraph {n}. " + f"word{n} " * 300 for n in range(6))
    EvervecStore(ev).add_texts([text], ids=["long"])
    (chunk,) = EvervecStore(ev).similarity_search("word3", k=1)
    (whole,) = EvervecStore(ev, whole=True).similarity_search("word3", k=1)
    assert whole.page_content == text
    assert len(chunk.page_content) < len(text)
    assert chunk.page_content in text


def test_deleted_documents_are_gone(store: EvervecStore) -> None:
    assert store.delete(["0", "absent"])
    assert "0" not in ids(store.similarity_search("tea hills", k=3))
    assert store.get_by_ids(["0"]) == []
    assert store.delete()
    assert store.similarity_search("grows") == []


def test_writes_of_others_are_found(store: EvervecStore, ev: Evervec) -> None:
    """Whoever wrote them: the store is not a copy."""
    ev.add("document", "Cocoa is bitter", id="other")
    ev.process_all()
    assert ids(store.similarity_search("bitter cocoa", k=1)) == ["other"]


def test_a_model_of_langchain_embeds(tmp_path: Path) -> None:
    store = EvervecStore.from_texts(
        TEXTS, DeterministicFakeEmbedding(size=8), [{"n": n} for n in range(3)], ids=["a", "b", "c"]
    )
    (found,) = store.similarity_search("Tea grows on hills", k=1)
    assert (found.id, found.metadata) == ("a", {"n": 0})
    store.ev.close()


def test_an_open_store_has_its_model(ev: Evervec, store: EvervecStore) -> None:
    with pytest.raises(InvalidArgument, match="model that it was opened with"):
        EvervecStore.from_texts(TEXTS, DeterministicFakeEmbedding(size=8), ev=ev)
    assert ev.count() == 3, "nothing was added"
    for embedding in (None, store.embeddings):
        made = EvervecStore.from_documents(documents(), embedding, ev=ev, kind="again")  # type: ignore[arg-type]
        assert ids(made.similarity_search("tea hills", k=1)) == ["0"]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_empty_document_stops_nothing_and_is_not_found(
    store: EvervecStore, ev: Evervec, is_async: bool
) -> None:
    pages = [
        Document(page_content="Cocoa is bitter", id="p1"), Document(page_content="", id="p2"),
        Document(page_content=" \n", id="0"), Document(page_content=""),
        Document(page_content="Milk is white"), Document(page_content="", id="p1"),
        Document(page_content="Salt is white", id="p1"),
    ]  # fmt: skip
    added = asyncio.run(store.aadd_documents(pages)) if is_async else store.add_documents(pages)
    assert [added[place] for place in (0, 1, 2, 5, 6)] == ["p1", "p2", "0", "p1", "p1"]
    assert len(set(added)) == 5
    assert store.get_by_ids([added[4]])[0].page_content == "Milk is white"
    assert store.get_by_ids(["0", "p2", added[3]]) == [], "its text is gone"
    assert store.get_by_ids(["p1"])[0].page_content == "Salt is white"
    assert ev.verify().complete
    assert ids(store.similarity_search("tea hills", k=9)) != ["0"]


def test_an_explanation_is_not_saved_with_a_document_that_is_added_again(ev: Evervec) -> None:
    store = EvervecStore(ev, explain=True)
    store.add_documents(documents())
    seqs = {record.id: record.seq for record in ev.records()}
    found = store.similarity_search("grows", k=3)
    assert all("evervec" in document.metadata for document in found)
    store.add_documents(found)
    assert {record.id: record.seq for record in ev.records()} == seqs, "nothing changed"
    own = [Document(id="0", page_content=TEXTS[0], metadata={"evervec": "mine"})]
    store.add_documents(own)
    assert ev.get("document", "0").metadata == {"evervec": "mine"}  # type: ignore[union-attr]


def test_a_retriever_of_something_else_says_what_it_needs(ev: Evervec) -> None:
    with pytest.raises(ValueError, match=r"must be an EvervecStore, not Evervec"):
        EvervecRetriever(store=ev)


def test_diverse_documents_are_those_of_langchain() -> None:
    """By langchain-core's own calculation, from the same 5 candidates for each. No two of these
    vectors are equally near."""
    k, model = 20, model_of(DeterministicFakeEmbedding(size=32))
    with evervec.open("memory:", embedder=model, overfetch=5) as ev:
        store = EvervecStore(ev)
        store.add_texts([f"text {n}" for n in range(400)], ids=[str(n) for n in range(400)])
        for query in ("one", "two", "three"):
            asked = np.array(store.embeddings.embed_query(query))  # type: ignore[union-attr]
            near = [document.id or "" for document in store.similarity_search(query, k=5 * k)]
            vectors = ev.vectors("document", near)
            points = [vectors[id][0].vector.tolist() for id in near]
            for share in (0.9, 0.5, 0.2):
                chosen = maximal_marginal_relevance(asked, points, share, k)
                found = ids(store.max_marginal_relevance_search(query, k=k, lambda_mult=share))
                assert found == [near[place] for place in chosen]


def test_lists_of_different_lengths_are_refused(store: EvervecStore) -> None:
    with pytest.raises(InvalidArgument, match="2 texts have 1 metadatas"):
        store.add_texts(["a", "b"], [{}])
    with pytest.raises(InvalidArgument, match="1 texts have 2 ids"):
        store.add_texts(["a"], ids=["1", "2"])


def test_it_works_over_a_service(ev: Evervec) -> None:
    with serving() as serve, ev.worker(), Client(serve(ev).url) as client:
        store = EvervecStore(client)
        store.add_documents(documents())
        assert ids(store.similarity_search("tea hills", k=1)) == ["0"]
        assert store.embeddings is None


def test_the_loop_goes_on_during_a_thousand_searches(tmp_path: Path) -> None:
    async def main() -> None:
        ticks, gaps = 0, list[float]()
        done = asyncio.Event()

        async def tick() -> None:
            nonlocal ticks
            while not done.is_set():
                began = time.thread_time()
                await asyncio.sleep(0)
                gaps.append(time.thread_time() - began)
                ticks += 1

        async with evervec.aopen(tmp_path / "notes.db", embedder="hashing") as ev:
            store = EvervecStore(ev)
            await store.aadd_documents(documents())
            ticking = asyncio.create_task(tick())
            found = await asyncio.gather(
                *(store.asimilarity_search("tea hills", k=1) for _ in range(1000))
            )
            done.set()
            await ticking
        assert all(ids(hits) == ["0"] for hits in found)
        assert ticks > 1000, "other tasks have their turns"
        # the processor's time of the loop's own thread between two turns, whatever else runs; in
        # the first one asyncio itself begins all thousand tasks
        assert max(gaps[1:]) < 0.5

    asyncio.run(main())


def test_asyncio_is_native(tmp_path: Path) -> None:
    """No call of the store runs in the thread of the loop, and hundreds run at once."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[EvervecStore]:
        async with evervec.aopen(tmp_path / "notes.db", embedder="hashing") as ev:
            yield EvervecStore(ev)

    async def main() -> None:
        async with opened() as store:
            await store.aadd_documents(documents())
            found: list[Any] = await asyncio.gather(
                *(store.asimilarity_search("tea hills", k=1) for _ in range(200))
            )
            assert all(ids(hits) == ["0"] for hits in found)
            retriever = EvervecRetriever(store=store, k=1)
            assert ids(await retriever.ainvoke("moon rockets")) == ["2"]
            assert ids(await store.amax_marginal_relevance_search("grows", k=2)) != []
            scored = await store.asimilarity_search_with_relevance_scores("tea hills", k=1)
            assert 0 <= scored[0][1] <= 1
            await store.adelete(["0"])
            assert await store.aget_by_ids(["0"]) == []
            assert ids(store.similarity_search("moon", k=1)) == ["2"], "blocking calls work too"
            await store.adelete()
            assert await store.asimilarity_search("moon") == []

    asyncio.run(main())
