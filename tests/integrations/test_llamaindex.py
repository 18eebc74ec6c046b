"""LlamaIndex: nodes in, nodes out, with the results of its own `SimpleVectorStore`."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    NodeRelationship,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

import evervec
from evervec import AsyncClient, Client, Evervec, InvalidArgument, InvalidRecord
from evervec.integrations.llamaindex import (
    EvervecEmbedding,
    EvervecRetriever,
    EvervecVectorStore,
    model_of,
)
from support.service import serving

SIZE = 8
"""dimensions of vectors"""
Is = FilterOperator
Mode = VectorStoreQueryMode


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="hashing") as opened:
        yield opened


@pytest.fixture
def store() -> Iterator[EvervecVectorStore]:
    """A store of vectors that the test makes."""
    model = model_of(MockEmbedding(SIZE, model_name="by-hand"))
    with evervec.open("memory:", embedder=model) as opened:
        yield EvervecVectorStore(opened)


def vector(chance: random.Random) -> list[float]:
    return [chance.gauss(0, 1) for _ in range(SIZE)]


def node(id: str, text: str = "a text", *, source: str | None = None, **parts: Any) -> TextNode:
    made = TextNode(id_=id, text=text, **parts)
    if source is not None:
        made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    return made


def any_metadata(chance: random.Random) -> dict[str, Any]:
    made = {
        "rank": chance.choice([0, 1, 2, 3, 1.5, None]),
        "theme": chance.choice(["tea", "green tea", "coffee", "", None]),
        "tags": [chance.choice(["a", "b", "c"]) for _ in range(chance.randrange(3))],
        "sizes": [chance.choice([0, 1, 2]) for _ in range(chance.randrange(3))],
        "is_hot": chance.choice([True, False]),
    }
    return {key: value for key, value in made.items() if chance.random() < 0.8}


def any_filter(chance: random.Random) -> MetadataFilter:
    ranges = [Is.GT, Is.GTE, Is.LT, Is.LTE]
    choices: list[tuple[str, list[Is], Any]] = [
        ("rank", [Is.EQ, Is.NE, *ranges], chance.choice([0, 1, 2, 1.5])),
        ("rank", [Is.IN, Is.NIN], chance.sample([0, 1, 2, 3], 2)),
        ("theme", [Is.EQ, Is.NE, Is.TEXT_MATCH, *ranges], chance.choice(["tea", "coffee", "n t"])),
        ("theme", [Is.IN, Is.NIN], chance.sample(["tea", "coffee", "milk"], 2)),
        ("tags", [Is.CONTAINS], chance.choice(["a", "b", "z"])),
        ("tags", [Is.ANY, Is.ALL], chance.sample(["a", "b", "c", "z"], chance.randrange(1, 3))),
        ("sizes", [Is.CONTAINS], chance.choice([0, 1, 7])),
        ("sizes", [Is.ANY, Is.ALL], chance.sample([0, 1, 2], 2)),
        ("is_hot", [Is.EQ, Is.NE], chance.choice([0, 1])),
        ("rank", [Is.EQ, Is.NE], None),
        (chance.choice(["rank", "theme", "tags", "absent"]), [Is.IS_EMPTY], None),
    ]  # fmt: skip
    key, operators, value = chance.choice(choices)
    return MetadataFilter(key=key, value=value, operator=chance.choice(operators))


def any_filters(chance: random.Random) -> MetadataFilters | None:
    parts: list[Any] = [any_filter(chance) for _ in range(chance.randrange(4))]
    condition = chance.choice([*FilterCondition, None])
    return MetadataFilters(filters=parts, condition=condition) if chance.random() < 0.9 else None


def any_nodes(chance: random.Random, count: int) -> list[TextNode]:
    return [
        node(f"n{n}", f"text {n}", source=f"doc{n % 5}" if n % 7 else None,
             metadata=any_metadata(chance), embedding=vector(chance))
        for n in range(count)
    ]  # fmt: skip


def any_change(chance: random.Random, step: int) -> Callable[[Any], object]:
    """A change of a store. A text says which vector a node has: the same text keeps its own."""
    fresh = any_nodes(random.Random(step), 30)[:: chance.randrange(1, 5)]
    fresh = [one.model_copy(update={"text": f"step {step}"}) for one in fresh]
    ids = [f"n{chance.randrange(40)}" for _ in range(4)]
    filters = MetadataFilters(filters=[any_filter(chance), any_filter(chance)])
    changes: list[Callable[[Any], object]] = [
        lambda to: to.add(fresh),
        lambda to: to.delete(f"doc{step % 5}"),
        lambda to: to.delete_nodes(ids),
        lambda to: to.delete_nodes(filters=filters),
        lambda to: to.delete_nodes(ids, filters),
        lambda to: to.clear() if step % 3 == 0 else None,
    ]
    return chance.choice(changes)


# Side by side


def test_queries_find_what_the_simple_store_finds(store: EvervecVectorStore) -> None:
    chance, simple = random.Random(7), SimpleVectorStore()
    nodes = any_nodes(chance, 60)
    assert store.add(nodes) == simple.add(nodes)
    found = 0
    for _ in range(300):
        query = VectorStoreQuery(
            query_embedding=vector(chance), similarity_top_k=chance.choice([1, 5, 100]),
            filters=any_filters(chance),
            node_ids=[f"n{chance.randrange(70)}" for _ in range(20)] if chance.random() < 0.3 else None,
        )  # fmt: skip
        mine, theirs = store.query(query), simple.query(query)
        assert mine.ids == theirs.ids, query
        assert mine.similarities == pytest.approx(theirs.similarities, abs=1e-5)
        found += len(mine.ids or [])
    assert found > 1000


def test_different_nodes_are_chosen_by_marginal_relevance(store: EvervecVectorStore) -> None:
    """The simple store compares a node only with the one chosen just before: the first two, and
    all at a threshold of 1, are the same."""
    chance, simple = random.Random(8), SimpleVectorStore()
    nodes = any_nodes(chance, 24)
    store.add(nodes)
    simple.add(nodes)
    units = {
        one.node_id: np.array(one.embedding) / np.linalg.norm(one.get_embedding()) for one in nodes
    }

    def chosen(asked: list[float], share: float, count: int) -> list[str]:
        near = {id: float(unit @ asked) / np.linalg.norm(asked) for id, unit in units.items()}
        found: list[str] = []
        while len(found) < count:
            worth = {
                id: share * near[id]
                - (1 - share) * max((float(units[id] @ units[one]) for one in found), default=0.0)
                for id in units.keys() - set(found)
            }
            found.append(max(worth, key=worth.__getitem__))
        return found

    for threshold in (None, 0.2, 0.5, 0.9, 1.0):
        asked, k = vector(chance), 8
        query = VectorStoreQuery(asked, k, mode=Mode.MMR, mmr_threshold=threshold)
        mine = store.query(query).ids or []
        as_text = replace(query, mode="mmr")  # type: ignore[arg-type]  # simple stores take it too
        assert store.query(as_text).ids == mine
        theirs = simple.query(query, mmr_threshold=threshold).ids or []
        assert mine == chosen(asked, 0.5 if threshold is None else threshold, k)
        same = k if threshold == 1.0 else 2
        assert mine[:same] == theirs[:same], threshold


def test_changes_leave_what_they_leave_in_the_simple_store(store: EvervecVectorStore) -> None:
    chance, simple = random.Random(9), SimpleVectorStore()
    everything = VectorStoreQuery(query_embedding=vector(chance), similarity_top_k=1000)
    for step in range(40):
        change = any_change(chance, step)
        change(store)
        change(simple)
        assert store.query(everything).ids == simple.query(everything).ids, step


# Beyond it


def test_nested_filters_select_what_they_say(store: EvervecVectorStore) -> None:
    chance = random.Random(10)
    nodes = any_nodes(chance, 40)
    store.add(nodes)

    def selected(filters: MetadataFilters) -> set[str]:
        """By the simple store, one level at a time."""
        parts = []
        for part in filters.filters:
            if isinstance(part, MetadataFilters):
                parts.append(selected(part))
                continue
            simple = SimpleVectorStore()
            simple.add(nodes)
            query = VectorStoreQuery([1.0] * SIZE, 1000, filters=MetadataFilters(filters=[part]))
            parts.append(set(simple.query(query).ids or []))
        every = {one.node_id for one in nodes}
        if not parts:
            return every
        if filters.condition is FilterCondition.AND:
            return set.intersection(*parts)
        either = set.union(*parts)
        return either if filters.condition is FilterCondition.OR else every - either

    def nested(depth: int) -> MetadataFilters:
        parts: list[Any] = [any_filter(chance) for _ in range(chance.randrange(3))]
        if depth:
            parts += [nested(depth - 1) for _ in range(chance.randrange(3))]
        return MetadataFilters(filters=parts, condition=chance.choice(list(FilterCondition)))

    for _ in range(60):
        filters = nested(2)
        assert {one.node_id for one in store.get_nodes(filters=filters)} == selected(filters)


def test_a_node_comes_back_as_it_was(store: EvervecVectorStore) -> None:
    given: list[BaseNode] = [
        node("1", "Tea grows on hills.", source="doc",
             metadata={"z": 1, "a": [], "none": None, "doc_id": "mine", "deep": {"x": [1, {"y": "ü"}]}},
             excluded_embed_metadata_keys=["z"], text_template="{content} / {metadata_str}",
             start_char_idx=3, end_char_idx=9),
        IndexNode(id_="2", text="See there.", index_id="other"),
        ImageNode(id_="3", image_url="https://example.com/tea.png"),
    ]  # fmt: skip
    for one in given:
        one.embedding = vector(random.Random(1))
    store.add(given)
    found = store.get_nodes(["1", "2", "3", "absent"])
    assert [type(one) for one in found] == [type(one) for one in given]
    for before, after in zip(given, found, strict=True):
        assert after.model_dump() == before.model_dump() | {"embedding": None}
    assert list(found[0].metadata) == ["z", "a", "none", "doc_id", "deep"], (
        "in this order it is embedded"
    )
    (best,) = store.query(VectorStoreQuery(given[0].embedding, 1, node_ids=["1"])).nodes or []
    assert best.ref_doc_id == "doc"


def test_a_record_of_others_is_a_text_node_whatever_its_metadata(ev: Evervec) -> None:
    store = EvervecVectorStore(ev)
    store.add([node("tea", "Tea.", metadata={"a": 1, "b": []})])
    (mine,) = ev.records()
    for content in ("{", "[]", "7", "{}", '{"metadata": 7}', 7, None, {"a": 1}):
        ev.add("node", "Coffee.", id="other", metadata={"_node_content": content, "n": 1})
        (found,) = store.get_nodes(["other"])
        assert (found.node_id, found.get_content(), found.metadata["n"]) == ("other", "Coffee.", 1)
    changed = mine.metadata | {"a": 2, "b": [3], "c": 4}
    ev.add("node", "Other tea.", id="tea", metadata=changed)
    (found,) = store.get_nodes(["tea"])
    assert (found.get_content(), found.metadata) == ("Other tea.", {"a": 2, "b": [3], "c": 4})


def test_words_and_vectors_are_weighed_by_alpha(ev: Evervec) -> None:
    store = EvervecVectorStore(ev)
    model = EvervecEmbedding(ev)
    texts = {"words": "zebra crossing rules", "near": "green tea from hills", "far": "iron rails"}
    store.add([node(id, text) for id, text in texts.items()])
    asked = model.get_query_embedding("green tea from the hills")

    def order(**given: Any) -> list[str]:
        query = VectorStoreQuery(asked, query_str="zebra crossing", similarity_top_k=3, **given)
        return store.query(query).ids or []

    assert order(mode=Mode.HYBRID, alpha=0.9)[0] == "near"
    assert order(mode=Mode.HYBRID, alpha=0.1)[0] == "words"
    assert order(mode=Mode.HYBRID, alpha=0.0) == order(mode=Mode.TEXT_SEARCH) == ["words"]
    assert order(mode=Mode.HYBRID, alpha=1.0) == order() == order(mode=Mode.DEFAULT)
    assert order(mode=Mode.SPARSE) == ["words"]
    assert len(order(mode=Mode.HYBRID, hybrid_top_k=1)) == 1
    assert set(order(mode=Mode.HYBRID)[:2]) == {"near", "words"}


def test_documents_are_chosen_by_their_ids(store: EvervecVectorStore) -> None:
    chance = random.Random(2)
    store.add(any_nodes(chance, 20))
    query = VectorStoreQuery(vector(chance), 100, doc_ids=["doc1", "doc2"])
    found = store.query(query).nodes or []
    assert found
    assert {one.ref_doc_id for one in found} == {"doc1", "doc2"}
    for chosen in ("n3", "absent"):
        query = VectorStoreQuery(vector(chance), 100, node_ids=[chosen], doc_ids=["doc3"])
        assert store.query(query).ids == ["n3"] * (chosen == "n3")


def test_an_unchanged_node_costs_nothing(ev: Evervec) -> None:
    """Evervec embeds nodes that have no vector, and only those that changed."""
    store = EvervecVectorStore(ev, is_embedding_query=False)
    nodes = [node("tea", "Tea grows."), node("moon", "The moon shines.", metadata={"by": "x"})]
    store.add(nodes)
    seqs = {record.id: record.seq for record in ev.records()}
    assert store.add(nodes) == ["tea", "moon"]
    assert {record.id: record.seq for record in ev.records()} == seqs
    nodes[1].metadata["by"] = "y"  # LlamaIndex embeds it with the text
    store.add(nodes)
    assert ev.queue.history("node", "moon")[-1].chunks_embedded == 1
    assert len(ev.queue.history("node", "tea")) == 1
    assert store.query(VectorStoreQuery(query_str="moon", similarity_top_k=1)).ids == ["moon"]
    assert ev.verify().complete


def test_an_index_of_llamaindex_works_with_it(ev: Evervec) -> None:
    store = EvervecVectorStore(ev)
    index = VectorStoreIndex.from_vector_store(store, embed_model=EvervecEmbedding(ev))
    index.insert_nodes([
        node("tea", "Tea grows on hills.", source="drinks"),
        node("moon", "Rockets fly to the moon.", source="space"),
    ])  # fmt: skip
    (best,) = index.as_retriever(similarity_top_k=1).retrieve("where does tea grow")
    assert (best.node_id, best.text) == ("tea", "Tea grows on hills.")
    assert best.score is not None
    assert ev.queue.history("node", "tea")[0].chunks_embedded == 0, "its vector was given"
    index.delete_ref_doc("drinks")
    assert [n.node_id for n in index.as_retriever(similarity_top_k=2).retrieve("tea")] == ["moon"]


def test_a_retriever_finds_records_of_every_origin(ev: Evervec) -> None:
    ev.add("note", "Cocoa is bitter.", id="cocoa", metadata={"topic": "drink"})
    ev.add("page", "The bitter end of a rope.", id="rope", metadata={"topic": "sea"})
    store = EvervecVectorStore(ev)
    store.add([node("tea", "Bitter tea.", metadata={"topic": "drink"})])
    ev.process_all()

    def found(source: Any, *args: Any, **given: Any) -> set[str]:
        return {n.node_id for n in EvervecRetriever(source, *args, **given).retrieve("bitter")}

    drinks = MetadataFilters(filters=[MetadataFilter(key="topic", value="drink")])
    assert found(ev) == {"cocoa", "rope", "tea"}
    assert found(ev, ["note", "node"]) == {"cocoa", "tea"}
    assert found(ev, filters=drinks) == {"cocoa", "tea"}
    assert found(ev, filters=drinks, options={"filter": {"topic": "sea"}}) == set()
    assert found(ev, similarity_top_k=1, mode="text") <= {"cocoa", "rope", "tea"}
    assert found(store) == {"tea"}
    with pytest.raises(InvalidArgument, match="leave out `kind`"):
        EvervecRetriever(store, "note")
    (best,) = EvervecRetriever(ev, "note").retrieve(QueryBundle("cocoa"))
    assert (best.text, best.metadata) == ("Cocoa is bitter.", {"topic": "drink"})
    assert 0 < (best.score or 0) <= 1


def test_a_retriever_returns_chunks_or_whole_records(ev: Evervec) -> None:
    text = "\n\n".join(f"Paragraph {n}. " + f"word{n} " * 300 for n in range(6))
    ev.add("page", text, id="long")
    ev.process_all()
    (chunk,) = EvervecRetriever(ev).retrieve("word3")
    (whole,) = EvervecRetriever(ev, whole=True).retrieve("word3")
    assert whole.text == text
    assert len(chunk.text) < len(text)


def test_what_cannot_be_done_is_said(store: EvervecVectorStore) -> None:
    def query(*parts: MetadataFilter, **given: Any) -> None:
        filters = MetadataFilters(filters=list(parts))
        store.query(VectorStoreQuery([1.0] * SIZE, 3, filters=filters, **given))

    with pytest.raises(InvalidArgument, match="unknown mode 'svm'"):
        query(mode=Mode.SVM)
    with pytest.raises(InvalidArgument, match="unknown mode 'best'"):
        query(mode="best")
    with pytest.raises(InvalidArgument, match="alpha must be"):
        query(mode=Mode.HYBRID, query_str="a", alpha=1.5)
    with pytest.raises(InvalidArgument, match="text_match_insensitive"):
        query(MetadataFilter(key="a", value="b", operator=Is.TEXT_MATCH_INSENSITIVE))
    with pytest.raises(InvalidArgument, match="'in' needs a list"):
        query(MetadataFilter(key="a", value="b", operator=Is.IN))
    with pytest.raises(InvalidArgument, match="not with a list"):
        query(MetadataFilter(key="a", value=["b"], operator=Is.EQ))
    with pytest.raises(InvalidArgument, match="use clear"):
        store.delete_nodes()
    with pytest.raises(InvalidRecord, match="have 3 dimensions"):
        store.add([node("1", embedding=[1.0, 2.0, 3.0])])


def test_it_works_over_a_service(ev: Evervec) -> None:
    EvervecVectorStore(ev)  # registers the kind whose texts stay whole
    with serving() as serve, ev.worker(), Client(serve(ev).url) as client:
        store = EvervecVectorStore(client, model=ev.embedder.model, wait=20)
        made = EvervecEmbedding(ev).get_text_embedding("Tea grows on hills.")
        store.add([node("tea", "Tea grows on hills.", embedding=made), node("moon", "The moon.")])
        assert store.query(VectorStoreQuery(made, 1)).ids == ["tea"]
        assert [one.node_id for one in store.get_nodes()] == ["moon", "tea"]
        with pytest.raises(InvalidArgument, match="model="):
            EvervecVectorStore(client).add([node("tea", embedding=made)])


def test_asyncio_is_native(tmp_path: Path) -> None:
    """All methods, over a store and over a service, without a call that blocks the loop."""

    async def use(store: EvervecVectorStore, asked: list[float]) -> None:
        nodes = [
            node("tea", "Tea grows on hills.", source="d1", metadata={"n": 1}, embedding=asked),
            node("moon", "Rockets fly to the moon.", source="d2", metadata={"n": 2}),
            node("sun", "The sun shines.", source="d2", metadata={"n": 3}),
        ]
        assert await store.async_add(nodes) == ["tea", "moon", "sun"]
        query = VectorStoreQuery(asked, 1)
        found = await asyncio.gather(*(store.aquery(query) for _ in range(50)))
        assert all(result.ids == ["tea"] for result in found)
        retriever = EvervecRetriever(store, similarity_top_k=1)
        assert [n.node_id for n in await retriever.aretrieve("moon rockets")] == ["moon"]
        over_one = MetadataFilters(filters=[MetadataFilter(key="n", value=1, operator=Is.GT)])
        assert {n.node_id for n in await store.aget_nodes(filters=over_one)} == {"moon", "sun"}
        await store.adelete("d1")
        await store.adelete_nodes(["sun"], over_one)
        assert [n.node_id for n in await store.aget_nodes()] == ["moon"]
        await store.aclear()
        assert await store.aget_nodes() == []

    async def main() -> None:
        async with evervec.aopen(tmp_path / "notes.db", embedder="hashing") as ev:
            asked = await EvervecEmbedding(ev).aget_query_embedding("tea on hills")
            await use(EvervecVectorStore(ev), asked)
            await use(EvervecVectorStore(ev.sync), asked)
            with serving() as serve:
                served = await asyncio.to_thread(serve, ev.sync, workers=1)
                async with AsyncClient(served.url) as client:
                    store = EvervecVectorStore(client, model=ev.embedder.model)
                    await use(store, asked)
                    with pytest.raises(InvalidArgument, match="asynchronous"):
                        store.get_nodes()

    asyncio.run(main())
