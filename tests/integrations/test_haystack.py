"""Haystack: documents in, documents out, and what its own suites do not ask for."""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError

import evervec
from evervec import AsyncClient, Client, Evervec, InvalidArgument, InvalidRecord
from evervec.integrations.haystack import EvervecDocumentStore, EvervecRetriever
from support.service import serving


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="hashing") as opened:
        yield opened


@pytest.fixture
def store(ev: Evervec) -> EvervecDocumentStore:
    return EvervecDocumentStore(ev=ev)


def documents() -> list[Document]:
    return [
        Document(id="tea", content="Tea grows on hills", meta={"topic": "drink", "n": 1}),
        Document(id="coffee", content="Coffee grows in the shade", meta={"topic": "drink", "n": 2}),
        Document(id="moon", content="Rockets fly to the moon", meta={"topic": "sky", "n": 3}),
    ]


def ids(found: list[Document]) -> list[str]:
    return [document.id for document in found]


def test_the_suites_of_haystack_pass() -> None:
    options = {"addopts": "", "filterwarnings": "default", "asyncio_mode": "strict",
               "asyncio_default_fixture_loop_scope": "function"}  # fmt: skip
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    file = Path(__file__).with_name("haystack_suite.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *given, str(file)],
        cwd=file.parents[2], env=os.environ,
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]
    counted = re.search(r"^(\d+) passed in", run.stdout, re.MULTILINE)
    assert counted, run.stdout[-3000:]
    assert int(counted[1]) > 150
    assert "skipped" not in run.stdout
    assert "xfailed" not in run.stdout


# Side by side


def any_meta(chance: random.Random) -> dict[str, Any]:
    made = {
        "number": chance.choice([-2, 0, 1, 3.5, None]),
        "name": chance.choice(["a", "b", "c"]),
        "date": f"20{chance.randrange(10, 30)}-0{chance.randrange(1, 9)}-01T00:00:00",
        "is_new": chance.choice([True, False]),
    }
    return {key: value for key, value in made.items() if chance.random() < 0.8}


def any_filter(chance: random.Random, depth: int) -> dict[str, Any]:
    if depth and chance.random() < 0.6:
        parts = [any_filter(chance, depth - 1) for _ in range(chance.randrange(1, 4))]
        return {"operator": chance.choice(["AND", "OR", "NOT"]), "conditions": parts}
    orders = [">", ">=", "<", "<="]
    choices: list[tuple[str, list[str], Any]] = [
        ("number", ["==", "!=", *orders], chance.choice([-2, 0, 1, 3.5, None])),
        ("number", ["in", "not in"], chance.sample([-2, 1, 3.5, 7], 2)),
        ("name", ["==", "!="], chance.choice(["a", "b", "z", None])),
        ("name", ["in", "not in"], chance.sample(["a", "b", "z"], 2)),
        ("date", orders, f"20{chance.randrange(10, 30)}-05-01T00:00:00"),
        ("is_new", ["==", "!="], chance.choice([True, False])),
    ]
    field, operators, value = chance.choice(choices)
    return {"field": f"meta.{field}", "operator": chance.choice(operators), "value": value}


def test_filters_select_what_the_store_in_memory_selects(store: EvervecDocumentStore) -> None:
    chance, simple = random.Random(5), InMemoryDocumentStore()
    written = [Document(id=str(n), content=f"text {n}", meta=any_meta(chance)) for n in range(60)]
    chance.shuffle(written)
    store.write_documents(written)
    simple.write_documents(written)
    found = 0
    for _ in range(200):
        filters = any_filter(chance, 3)
        mine = store.filter_documents(filters)
        assert mine == simple.filter_documents(filters), filters
        assert store.count_documents_by_filter(filters) == len(mine)
        found += len(mine)
    assert found > 1000
    for name in ("number", "meta.name", "date", "is_new", "absent"):
        assert store.get_metadata_field_min_max(name) == simple.get_metadata_field_min_max(name)
        assert store.get_metadata_field_unique_values(name, size=99) == (
            simple.get_metadata_field_unique_values(name, size=99)
        )
    assert store.get_metadata_fields_info().keys() == simple.get_metadata_fields_info().keys()


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "content", "operator": "==", "value": "a"},
        {"field": "meta.a", "operator": "like", "value": "a"},
        {"field": "meta.a", "operator": "==", "value": ["a"]},
        {"field": "meta.a", "operator": ">", "value": True},
        {"field": "meta.a", "operator": "in", "value": [["a"]]},
        {"operator": "XOR", "conditions": [{"field": "meta.a", "operator": "==", "value": 1}]},
        {"operator": "AND", "conditions": ["a"]},
        {"operator": "AND", "conditions": []},
    ],
)
def test_a_wrong_filter_is_refused(store: EvervecDocumentStore, filters: dict[str, Any]) -> None:
    for ask in (store.filter_documents, store.count_documents_by_filter, store.delete_by_filter):
        with pytest.raises(FilterError):
            ask(filters)


# Documents


def test_a_document_comes_back_as_it_was(store: EvervecDocumentStore) -> None:
    given = [
        Document(content="Tea", meta={"deep": {"x": [1, None]}, "ü": 1.0}, embedding=[0.1, -2.0]),
        Document(blob=ByteStream(b"\x00\xff", {"file": "a.bin"}, "application/octet-stream")),
        Document(content="", meta={"n": 1}),
        Document(content="Both", sparse_embedding=SparseEmbedding([1, 7], [0.5, 0.25])),
    ]
    assert store.write_documents(given) == 4
    assert store.filter_documents() == given


def test_a_record_of_others_is_a_document_whatever_its_metadata(
    store: EvervecDocumentStore, ev: Evervec
) -> None:
    for given in ("{", "[]", 7, None):
        ev.add("document", "Coffee.", id="other", metadata={"_haystack": given, "n": 1})
        assert store.filter_documents() == [Document(id="other", content="Coffee.", meta={"n": 1})]
    with pytest.raises(InvalidRecord, match="'_haystack' is reserved"):
        store.write_documents([Document(content="a", meta={"_haystack": "b"})])


def test_policies_decide_about_documents_that_exist(store: EvervecDocumentStore) -> None:
    tea, coffee, moon = documents()
    store.write_documents([tea])
    with pytest.raises(DuplicateDocumentError, match="'tea' exists: nothing was written"):
        store.write_documents([coffee, tea], DuplicatePolicy.FAIL)
    with pytest.raises(DuplicateDocumentError, match="'moon'"):
        store.write_documents([moon, moon], DuplicatePolicy.FAIL)
    assert store.count_documents() == 1
    other = Document(id="tea", content="Other tea")
    assert store.write_documents([other, moon, moon], DuplicatePolicy.SKIP) == 1
    assert store.filter_documents() == [tea, moon]
    assert store.write_documents([other], DuplicatePolicy.OVERWRITE) == 1
    assert store.filter_documents() == [moon, other]


def test_an_unchanged_document_costs_nothing(store: EvervecDocumentStore, ev: Evervec) -> None:
    store.write_documents(documents())
    seqs = {record.id: record.seq for record in ev.records()}
    assert store.write_documents(documents()) == 3
    assert {record.id: record.seq for record in ev.records()} == seqs
    assert ev.verify().complete


def test_an_update_embeds_nothing_and_keeps_what_others_wrote(ev: Evervec) -> None:
    class Meddled:
        """A store in which others write while documents are updated."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ev, name)

        def records(self, *args: Any, **options: Any) -> Any:
            page = ev.records(*args, **options)
            if page:
                ev.add("document", "Tea grows in valleys", id="tea", metadata={"topic": "drink"})
                ev.add("document", "Coffee is a bean", id="coffee", metadata={"topic": "bean"})
            return page

    EvervecDocumentStore(ev=ev).write_documents(documents())
    store = EvervecDocumentStore(ev=Meddled())
    drinks = {"field": "meta.topic", "operator": "==", "value": "drink"}
    assert store.update_by_filter(drinks, {"seen": True}) == 1
    tea, coffee = ev.get("document", "tea"), ev.get("document", "coffee")
    assert tea is not None
    assert coffee is not None
    assert (tea.text, tea.metadata) == ("Tea grows in valleys", {"topic": "drink", "seen": True})
    assert (coffee.text, coffee.metadata) == ("Coffee is a bean", {"topic": "bean"})
    ev.process_all()
    assert EvervecDocumentStore(ev=ev).update_by_filter(drinks, {"seen": False}) == 1
    assert ev.queue.history("document", "tea")[-1].chunks_embedded == 0


# Retriever and pipelines


def test_a_retriever_finds_by_meaning_and_words(store: EvervecDocumentStore, ev: Evervec) -> None:
    store.write_documents(documents())
    retriever = EvervecRetriever(store, top_k=2)
    found = retriever.run("tea hills")["documents"]
    assert found[0].id == "tea"
    assert 0 < (found[0].score or 0) <= 1
    assert ids(retriever.run("grows", top_k=1)["documents"]) in (["tea"], ["coffee"])
    assert retriever.run("grows", top_k=0)["documents"] == []
    sky = {"field": "meta.topic", "operator": "==", "value": "sky"}
    assert ids(retriever.run("grows", filters=sky)["documents"]) == ["moon"]
    assert ids(EvervecRetriever(store, mode="text").run("moon")["documents"]) == ["moon"]
    first = {"field": "meta.n", "operator": "==", "value": 1}
    both = EvervecRetriever(store, sky, filter_policy=FilterPolicy.MERGE)
    assert both.run("grows", filters=first)["documents"] == []
    assert EvervecRetriever(store, options={"min_relevance": 0.99}).run("x")["documents"] == []
    ev.add("document", "Cocoa is bitter", id="other")
    ev.process_all()
    assert ids(retriever.run("bitter cocoa", top_k=1)["documents"]) == ["other"]
    with pytest.raises(InvalidArgument, match="must be an EvervecDocumentStore"):
        EvervecRetriever(InMemoryDocumentStore())  # type: ignore[arg-type]


def test_a_long_document_comes_back_whole_or_as_its_chunk(store: EvervecDocumentStore) -> None:
    text = "\n\n".join(f"Paragraph {n}. " + f"word{n} " * 300 for n in range(6))
    store.write_documents([Document(id="long", content=text)])
    (whole,) = EvervecRetriever(store).run("word3")["documents"]
    (chunk,) = EvervecRetriever(store, whole=False).run("word3")["documents"]
    assert whole.content == text
    assert chunk.content
    assert chunk.content in text
    assert len(chunk.content) < len(text)


def test_a_pipeline_is_saved_and_works_again(tmp_path: Path) -> None:
    place = str(tmp_path / "notes.db")
    given: dict[str, Any] = {"embedder": "hashing", "settings": {"batch_size": 8}}
    store = EvervecDocumentStore(place, **given)
    filters = {"field": "meta.topic", "operator": "==", "value": "drink"}
    pipeline = Pipeline()
    pipeline.add_component("writer", DocumentWriter(store, DuplicatePolicy.OVERWRITE))
    pipeline.add_component(
        "retriever",
        EvervecRetriever(store, filters, 1, mode="semantic", filter_policy=FilterPolicy.MERGE),
    )
    pipeline.run({"writer": {"documents": documents()}, "retriever": {"query": "tea"}})
    saved = pipeline.dumps()
    assert "EVERVEC_KEY" in saved, "by name, not by value"
    again = Pipeline.loads(saved, allowed_modules=["evervec.integrations.haystack.*"])
    assert again.to_dict() == pipeline.to_dict()
    store.close()
    found = again.run({"writer": {"documents": []}, "retriever": {"query": "where tea grows"}})
    assert ids(found["retriever"]["documents"]) == ["tea"]
    for name in ("retriever", "writer"):
        component: Any = again.get_component(name)
        component.document_store.close()


def test_a_store_over_an_open_one_is_not_saved(store: EvervecDocumentStore) -> None:
    with pytest.raises(InvalidArgument, match="instead of `ev`"):
        store.to_dict()


def test_it_works_over_a_service(ev: Evervec) -> None:
    with serving() as serve, ev.worker():
        url = serve(ev).url
        store = EvervecDocumentStore(url=url)
        store.write_documents(documents())
        assert ids(EvervecRetriever(store, top_k=1).run("tea hills")["documents"]) == ["tea"]
        drinks = {"field": "meta.topic", "operator": "==", "value": "drink"}
        assert store.update_by_filter(drinks, {"seen": True}) == 2
        assert store.delete_by_filter(drinks) == 2
        assert ids(store.filter_documents()) == ["moon"]
        store.close()
        with Client(url) as client:
            assert EvervecDocumentStore(ev=client).count_documents() == 1


def test_asyncio_is_native(tmp_path: Path) -> None:
    async def use(store: EvervecDocumentStore) -> None:
        await store.write_documents_async(documents())
        retriever = EvervecRetriever(store, top_k=1)
        found = await asyncio.gather(*(retriever.run_async("tea hills") for _ in range(50)))
        assert all(ids(result["documents"]) == ["tea"] for result in found)
        pipeline = Pipeline()
        pipeline.add_component("retriever", retriever)
        result = await pipeline.run_async({"retriever": {"query": "moon"}})
        assert ids(result["retriever"]["documents"]) == ["moon"]
        await store.delete_all_documents_async()
        assert await store.count_documents_async() == 0

    async def main() -> None:
        async with evervec.aopen(tmp_path / "notes.db", embedder="hashing") as ev:
            await use(EvervecDocumentStore(ev=ev))
            with serving() as serve:
                served = await asyncio.to_thread(serve, ev.sync, workers=1)
                async with AsyncClient(served.url) as client:
                    await use(EvervecDocumentStore(ev=client))

    asyncio.run(main())
