"""Reading an embedder's answers and failures: whose fault, and which text's."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evervec import InvalidInput, ProviderUnavailable, RateLimited
from evervec.embedders.base import PROBE, BadAnswer, describe, embed, embed_query, spec_of
from support.world import ScriptedEmbedder

TEXTS = [f"text {n}" for n in range(256)]
Answer = Callable[[NDArray[np.float32]], Any]


class Answering(ScriptedEmbedder):
    """Changes its answers where some of the texts are in the batch."""

    def __init__(self, poison: Sequence[str], answer: Answer) -> None:
        super().__init__(dimensions=8)
        self.poison = set(poison)
        self.answer = answer

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = super().embed(texts)
        bad = [n for n, text in enumerate(texts) if text in self.poison]
        if not bad:
            return rows
        broken: NDArray[np.float32] = self.answer(rows)
        return broken


def refuse(poison: Sequence[str], error: Exception) -> ScriptedEmbedder:
    embedder = ScriptedEmbedder()

    def check(texts: Sequence[str]) -> None:
        if set(texts) & set(poison):
            raise error

    embedder.before = check
    return embedder


def test_good_texts_are_one_call() -> None:
    embedder = ScriptedEmbedder()
    answer = embed(embedder, TEXTS)
    assert len(embedder.calls) == 1
    assert answer.errors == {}
    assert answer.vectors.shape == (256, 64)


@pytest.mark.parametrize("place", [0, 77, 255])
def test_one_poison_among_256_is_found_in_few_calls(place: int) -> None:
    embedder = refuse([TEXTS[place]], ValueError("poison"))
    answer = embed(embedder, TEXTS)
    assert list(answer.errors) == [place]
    assert "poison" in str(answer.errors[place])
    assert len(embedder.calls) <= 3 + 2 * 8
    good = [n for n in range(256) if n != place]
    assert np.linalg.norm(answer.vectors[good], axis=1) == pytest.approx(1.0, abs=1e-5)


def test_several_poisons_are_each_found() -> None:
    bad = [3, 4, 100, 255]
    answer = embed(refuse([TEXTS[n] for n in bad], ValueError()), TEXTS)
    assert sorted(answer.errors) == bad


def test_the_provider_is_not_probed_for_each_half() -> None:
    embedder = refuse([TEXTS[9]], ValueError("poison"))
    embed(embedder, TEXTS)
    assert embedder.texts.count(PROBE) <= 2


def test_an_outage_that_begins_while_a_bad_text_is_looked_for_is_an_outage() -> None:
    embedder = ScriptedEmbedder()
    probed: list[bool] = []

    def fall(texts: Sequence[str]) -> None:
        if probed:
            raise ConnectionError("reset")
        if list(texts) == [PROBE]:
            probed.append(True)
        elif "text 3" in texts:
            raise ValueError("poison")

    embedder.before = fall
    with pytest.raises(ProviderUnavailable):
        embed(embedder, TEXTS[:8])


def test_refused_positions_fail_and_the_rest_is_asked_again() -> None:
    embedder = ScriptedEmbedder()

    def check(texts: Sequence[str]) -> None:
        bad = [n for n, text in enumerate(texts) if text in ("text 5", "text 9")]
        if bad:
            raise InvalidInput(bad, "too long")

    embedder.before = check
    answer = embed(embedder, TEXTS[:20])
    assert sorted(answer.errors) == [5, 9]
    assert all(isinstance(e, InvalidInput) for e in answer.errors.values())
    assert len(embedder.calls) == 2


@pytest.mark.parametrize("positions", [(), (99,), (-1,)])
def test_a_refusal_that_names_no_text_of_the_batch_is_narrowed_down(
    positions: tuple[int, ...],
) -> None:
    answer = embed(refuse(["text 5"], InvalidInput(positions)), TEXTS[:16])
    assert list(answer.errors) == [5]
    assert isinstance(answer.errors[5], InvalidInput)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda rows: rows[:-1], id="too few"),
        pytest.param(lambda rows: np.vstack([rows, rows]), id="too many"),
        pytest.param(lambda rows: rows[:, :-1], id="too short"),
        pytest.param(lambda rows: rows[0], id="one row alone"),
        pytest.param(lambda rows: [], id="nothing"),
        pytest.param(lambda rows: None, id="none"),
        pytest.param(lambda rows: [["a", "b"]], id="text"),
        pytest.param(lambda rows: rows * np.nan, id="NaN"),
        pytest.param(lambda rows: rows * np.inf, id="infinite"),
        pytest.param(lambda rows: rows * 0, id="zero"),
    ],
)
def test_a_wrong_answer_fails_the_text_that_causes_it_alone(answer: Answer) -> None:
    with np.errstate(all="ignore"):
        found = embed(Answering(["text 5"], answer), TEXTS[:16])
    assert list(found.errors) == [5]
    assert np.isfinite(found.vectors).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_bad_row_in_a_good_answer_is_asked_again_alone(value: float) -> None:
    class Once(ScriptedEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            rows = super().embed(texts)
            if len(texts) > 1:
                rows[2] = value
            return rows

    embedder = Once()
    with np.errstate(all="ignore"):
        answer = embed(embedder, TEXTS[:5])
    assert answer.errors == {}
    assert embedder.calls == [TEXTS[:5], ["text 2"]]


def test_rows_of_any_length_become_unit_vectors() -> None:
    answer = embed(Answering(TEXTS, lambda rows: rows * 1e18), TEXTS[:3])
    assert np.linalg.norm(answer.vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    tiny = embed(Answering(TEXTS, lambda rows: rows * 1e-18), TEXTS[:3])
    assert np.linalg.norm(tiny.vectors, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_lists_of_floats_are_an_answer_too() -> None:
    answer = embed(Answering(TEXTS, lambda rows: rows.astype(float).tolist()), TEXTS[:3])
    assert answer.errors == {}


def test_a_provider_that_fails_the_probe_too_is_away() -> None:
    embedder = ScriptedEmbedder()
    embedder.before = lambda texts: 1 / 0
    with pytest.raises(ProviderUnavailable, match="ZeroDivisionError") as caught:
        embed(embedder, TEXTS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(embedder.calls) == 2


def test_a_provider_whose_every_answer_is_wrong_is_away() -> None:
    with pytest.raises(ProviderUnavailable, match="dimensions"):
        embed(Answering([*TEXTS, PROBE], lambda rows: rows[:, :3]), TEXTS)


@pytest.mark.parametrize("error", [ProviderUnavailable("away"), RateLimited(7.5)])
def test_what_is_nobodys_fault_passes(error: Exception) -> None:
    embedder = refuse(TEXTS, error)
    with pytest.raises(type(error)) as caught:
        embed(embedder, TEXTS)
    assert caught.value is error
    assert len(embedder.calls) == 1


def test_an_outage_that_the_probe_meets_passes() -> None:
    embedder = ScriptedEmbedder()

    def unclear(texts: Sequence[str]) -> None:
        raise RateLimited(3) if texts == [PROBE] else ValueError("unclear")

    embedder.before = unclear
    with pytest.raises(RateLimited) as caught:
        embed(embedder, TEXTS)
    assert caught.value.retry_after == 3


def test_no_texts_are_no_calls() -> None:
    embedder = ScriptedEmbedder()
    assert len(embed(embedder, []).vectors) == 0
    assert embedder.calls in ([], [[]])


def test_a_question_may_be_embedded_differently() -> None:
    class Asking(ScriptedEmbedder):
        def embed_query(self, text: str) -> NDArray[np.float32]:
            row: NDArray[np.float32] = super().embed([f"query: {text}"])[0] * 3
            return row

    embedder = Asking()
    assert np.linalg.norm(embed_query(embedder, "x")) == pytest.approx(1.0)
    assert embedder.texts == ["query: x"]


@pytest.mark.parametrize("answer", [lambda r: r * 0, lambda r: r * np.nan, lambda r: r[:, :2]])
def test_a_question_with_a_wrong_answer_is_an_error(answer: Answer) -> None:
    with pytest.raises(BadAnswer):
        embed_query(Answering(["x"], answer), "x")


def test_a_version_is_named_after_its_model() -> None:
    embedder = ScriptedEmbedder()
    for model, name in (
        ("all-MiniLM-L6-v2", "all-minilm-l6-v2"),
        ("BAAI/bge small", "baai-bge-small"),
        ("モデル", "hashing"),
    ):
        embedder.model = model
        spec = spec_of(embedder)
        assert spec is not None
        assert spec.name == name


def test_errors_are_described_in_one_line() -> None:
    assert describe(ValueError("a\n  b")) == "ValueError: a b"
    assert describe(ValueError()) == "ValueError"
    assert describe(ProviderUnavailable("away")) == "away"
