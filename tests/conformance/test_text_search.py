"""Full text: what is live, by words, as the store ranks it."""

from support.world import KIND, World, add_all, fail_for_good


def found(world: World, query: str, **options: object) -> list[str]:
    return [h.id for h in world.ev.search(query, mode="text", **options)]  # type: ignore[arg-type]


def test_records_are_found_by_any_of_the_words_the_better_first(world: World) -> None:
    add_all(world.ev, KIND, "red green blue", "red red yellow", "nothing of it")
    assert found(world, "green blue") == ["0"]
    assert set(found(world, "red")) == {"0", "1"}
    assert found(world, "green red")[0] == "0"
    assert found(world, "purple") == []


def test_text_is_found_before_anything_is_embedded(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    assert found(world, "alpha") == ["1"]
    fail_for_good(world.ev)
    assert found(world, "alpha") == ["1"]


def test_titles_count_more_than_text(world: World) -> None:
    world.ev.add(KIND, "apple pie and cream", id="text", title="dessert")
    world.ev.add(KIND, "dessert and cream now", id="title", title="apple")
    assert found(world, "apple") == ["title", "text"]


def test_words_are_found_by_their_stem_case_and_accents_aside(world: World) -> None:
    add_all(world.ev, KIND, "Running in the Café")
    for query in ("run", "RUNS", "cafe", "CAFÉ"):
        assert found(world, query) == ["0"]


def test_a_quoted_phrase_is_found_as_a_whole(world: World) -> None:
    add_all(world.ev, KIND, "new york city", "york has a new city")
    assert found(world, '"new york"') == ["0"]


def test_no_query_is_a_syntax_error(world: World) -> None:
    add_all(world.ev, KIND, "alpha")
    odd = ('"', '""', "AND", "NOT alpha", "alpha*", "(", "a:b", "alpha^2", "-", "NEAR(alpha)")
    for query in (*odd, "'; drop"):
        assert found(world, query) in (["0"], []), query


def test_a_part_of_unspaced_text_is_found(world: World) -> None:
    add_all(world.ev, KIND, "東京都は日本の首都です", "大阪")
    assert found(world, "日本") == ["0"]


def test_a_part_of_a_word_is_found_but_several_words_are_no_part_of_a_text(world: World) -> None:
    world.ev.add("note", "mountain climbing", id="a")
    assert [hit.id for hit in world.ev.search("ountai", mode="text")] == ["a"]
    assert not world.ev.search("ountain climbi", mode="text")


def test_a_query_as_long_as_it_may_be_works(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "b a" * 500)
    most = world.ev.settings.query_chars
    for rest in (" ".join(f"w{n}" for n in range(most)), "a" * most, "a_" * most, "é\u0301" * most):
        assert found(world, f"alpha {rest}"[:most])[0] == "0"
    for query in ('"' + "b a " * most, "\u0301\u0327" * most, "%" * most):
        assert found(world, query[:most]) in ([], ["1"])


def test_kind_and_metadata_narrow_the_search(world: World) -> None:
    world.ev.add("a", "alpha", id="1", metadata={"lang": "en"})
    world.ev.add("b", "alpha", id="2", metadata={"lang": "en"})
    world.ev.add("b", "alpha", id="3", metadata={"lang": "de"})
    assert set(found(world, "alpha", kind="b")) == {"2", "3"}
    assert found(world, "alpha", kind="b", filter={"lang": "en"}) == ["2"]
    assert found(world, "alpha", kind="c") == []


def test_updated_and_deleted_words_are_no_longer_found(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "alpha")
    world.ev.add(KIND, "beta", id="0", title="gamma")
    world.ev.add(KIND, "beta", id="0")
    world.ev.delete(KIND, "1")
    assert found(world, "alpha") == []
    assert found(world, "gamma") == []
    assert found(world, "beta") == ["0"]


def test_the_store_gives_no_more_than_the_limit_and_scores_best_first(world: World) -> None:
    add_all(world.ev, KIND, *(f"alpha {'beta ' * n}" for n in range(20)))
    rows = world.ev.store.records.search_text("default", None, "alpha", 5, ())
    assert len(rows) == 5
    scores = [score for _, score in rows]
    assert scores == sorted(scores, reverse=True)


def test_candidates_and_found_are_live_records_only(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    numbers = [j.record for j in sorted(world.ev.queue.jobs(), key=lambda j: j.record_id)]
    world.ev.delete(KIND, "1")
    assert list(world.ev.store.records.candidates("default", [*numbers, 10**12])) == numbers[:1]
    assert world.ev.store.records.candidates("other", numbers) == {}
    found_ = world.ev.store.records.found(numbers)
    assert [(f.kind, f.id, f.text) for f in found_.values()] == [(KIND, "0", "alpha")]


def test_a_name_whose_stem_is_a_stop_word_finds_no_stop_words(world: World) -> None:
    add_all(
        world.ev, KIND, "The plumber in the house is called Ines", "in the garden, in the shade"
    )
    assert found(world, "Ines") == found(world, "who is Ines") == ["0"]
    (hit,) = world.ev.search("Ines", mode="text", explain=True)
    assert hit.explanation is not None
    assert [word.word for word in hit.explanation.matched] == ["Ines"]
    assert set(found(world, "in")) == {"0", "1"}
