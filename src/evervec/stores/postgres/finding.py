"""Full-text search, with PostgreSQL's stemming."""

from __future__ import annotations

import re

from evervec.model.filters import Conditions
from evervec.stores.postgres.engine import SQL, Engine
from evervec.stores.postgres.filters import Filter
from evervec.stores.sql import finding
from evervec.stores.sql.folding import fold, owner_word
from evervec.stores.sql.words import part_of_text, terms

_SPECIAL = re.compile(r"([\\%_])")


class Finding(Engine, finding.Finding):
    """The part of the store that searches use."""

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Conditions,
    ) -> list[tuple[int, float]]:
        words = [fold(term) for term in terms(query)]
        with self.db.reading() as conn:
            if words:
                head = [tenant, kind, limit, f"'{owner_word(tenant)}'", *words]
                given = Filter(filter, len(head))
                any_of = " || ".join(
                    f"phraseto_tsquery('evervec.words', ${place}::text)"
                    for place in range(5, 5 + len(words))
                )
                ranked = SQL.match_text.replace("{words}", any_of).replace("{filter}", given.clause)
                rows = conn.execute(ranked, [*head, *given.values]).fetchall()
                if rows:
                    return rows
            # for words that the parser cannot split, such as a part of Chinese or Japanese text
            if (part := part_of_text(query)) is None:
                return []
            literal = _SPECIAL.sub(r"\\\1", part)
            head = [tenant, kind, limit, f"%{literal}%"]
            given = Filter(filter, len(head))
            plain = SQL.contains_text.replace("{filter}", given.clause)
            return conn.execute(plain, [*head, *given.values]).fetchall()
