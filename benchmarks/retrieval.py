"""How good the hits are: nDCG@10 on SciFact with the local model.

5,183 abstracts and 300 claims, judged by people; the measure is pytrec_eval's. Beside
evervec's semantic search stands the model by itself: one vector a document, cut where
the model cuts, and a plain product. Beside its hybrid search stands the better of its
two parts. The hits of all hybrid searches together show that a relevance means the same
in each: of those with a higher one, more are right. Quick: the judged abstracts and as
many others, and the first 100 claims.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytrec_eval

import evervec
from benchmarks.table import Line, Target, at_least
from evervec.embedders.local import local

DATA = Path(__file__).parents[2] / "shared" / "data" / "scifact"
_MODES = ("text", "semantic", "hybrid")
_LEAST = 0.73
"""nDCG@10 of hybrid searches, which no change of the ranking may lower"""


def run(*, quick: bool) -> Sequence[Line]:
    documents, queries, judged = _load(quick)
    runs: dict[str, dict[str, dict[str, float]]] = {}
    with (
        TemporaryDirectory(prefix="evervec-bench-") as folder,
        evervec.open(Path(folder) / "scifact.db", embedder="local") as ev,
    ):
        for _ in ev.add_many("document", documents):
            pass
        ev.process_all()
        for mode in _MODES:
            runs[mode] = {
                query["id"]: {hit.id: hit.relevance for hit in ev.search(query["text"], mode=mode)}
                for query in queries
            }
    runs["plain"] = _plain(documents, queries)
    scores = {name: _ndcg(judged, found) for name, found in runs.items()}
    better = max(scores["text"], scores["semantic"])
    lines = [
        Line("text", "", scores["text"]),
        Line("semantic", "", scores["semantic"], "the model by itself", scores["plain"],
             Target("≥ -0.005", lambda ratio: (ratio - 1) * scores["plain"] >= -0.005)),
        Line("hybrid", "", scores["hybrid"], "the better of its parts", better,
             Target("≥ +0.01", lambda ratio: (ratio - 1) * better >= 0.01)),
    ]  # fmt: skip
    least = None if quick else at_least(_LEAST)
    lines.append(Line("hybrid, by itself", "", scores["hybrid"], target=least, own=True))
    before: float | None = None
    for what, share in _shares(judged, runs["hybrid"]):
        target = None if before is None else at_least(before)
        lines.append(Line(what, "", share, target=target, own=True))
        before = share
    return lines


def _shares(
    judged: dict[str, dict[str, int]], found: dict[str, dict[str, float]]
) -> Iterator[tuple[str, float]]:
    """How many of the hits are judged relevant, in each fifth of all hits by relevance: the higher
    a relevance is, in whichever search, the more likely the hit is right."""
    hits = sorted(
        (relevance, judged[query].get(id, 0) > 0)
        for query, ids in found.items()
        for id, relevance in ids.items()
    )
    for fifth in np.array_split(np.array(hits), 5):
        (least, _), (most, _) = fifth[0], fifth[-1]
        yield f"right, of relevance {least:.2f} to {most:.2f}", float(fifth[:, 1].mean())


def _load(quick: bool) -> tuple[list[Any], list[Any], dict[str, dict[str, int]]]:
    documents = [json.loads(line) for line in (DATA / "corpus.jsonl").open(encoding="utf-8")]
    queries = [json.loads(line) for line in (DATA / "queries.jsonl").open(encoding="utf-8")]
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (DATA / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        judged[query][document] = int(grade)
    for item in documents + queries:
        item["id"] = str(item["id"])
    if quick:
        queries = queries[:100]
        wanted = {document for query in queries for document in judged[query["id"]]}
        others = [d for d in documents if d["id"] not in wanted][: len(wanted)]
        documents = [d for d in documents if d["id"] in wanted] + others
    return documents, queries, {q["id"]: judged[q["id"]] for q in queries}


def _plain(documents: list[Any], queries: list[Any]) -> dict[str, dict[str, float]]:
    embedder = local()
    vectors = embedder.embed([f"{d['title']}\n\n{d['text']}" for d in documents])
    asked = embedder.embed([q["text"] for q in queries])
    found = {}
    for query, scores in zip(queries, asked @ vectors.T, strict=True):
        best = np.argsort(-scores)[:10]
        found[query["id"]] = {documents[i]["id"]: float(scores[i]) for i in best}
    return found


def _ndcg(judged: dict[str, dict[str, int]], found: dict[str, dict[str, float]]) -> float:
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10"})
    scores = evaluator.evaluate(found)
    return float(np.mean([scores[query]["ndcg_cut_10"] for query in found]))
