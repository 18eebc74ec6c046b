"""Searches of a model: `Article.evervec.search("…")` gives a queryset, the most relevant first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, router
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.db.models.manager import BaseManager
from django.db.models.query import ModelIterable

from evervec.errors import InvalidArgument
from evervec.facade import Evervec
from evervec.integrations.django.declaration import SearchIndex, searched_model
from evervec.integrations.django.filters import filter_of
from evervec.integrations.django.keys import primary_key, stored_key
from evervec.integrations.django.stores import STORES
from evervec.model.records import Hit

_HITS = "evervec_hits"
"""the hint of a queryset with its hits by primary key: querysets keep their hints"""
_AT_ONCE = 100
"""keys in one condition"""
_MORE = 4
"""how many times `k` hits are looked at first, if a queryset may leave some out"""


class ModelSearch:
    """What `Article.evervec` is: the searches of one model."""

    def __init__(self, index: SearchIndex, model: Any) -> None:
        self.model = model
        self._searched = searched_model(model, index)
        self.declaration = index.declaration(self._searched)

    @property
    def kind(self) -> str:
        """The kind of the model's records in the store."""
        return self.declaration.kind

    def store(self, using: str | None = None) -> Evervec:
        """The open store with the model's records, for everything else that evervec does."""
        return STORES.get(using or router.db_for_write(self._searched))

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        among: Any = None,
        tenant: str | None = None,
        using: str | None = None,
        stale: bool = False,
        filter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """A queryset of the `k` best instances for a query, the most relevant first; each has its
        hit, with relevance, similarity and the best passage, as `instance.evervec_hit`.

        The search is made at once; the queryset reads the rows when it is used, and can be
        filtered, ordered and sliced further. `among`: a queryset of this model, from which the best
        `k` are chosen; its `select_related` and the like stay. Without it, the default manager
        decides which rows there are. Deleted rows are left out, and those that changed since they
        were embedded, unless `stale` is set. Of very many rows, the best hits are looked at, as
        many as the setting `most_hits` says. `tenant`: for models whose rows have one. `using`: the
        database, by default that of `among`, else the one that the model is written to. `filter`:
        by the names of fields, with their values. `options`: `mode`, `vector`, `min_similarity`,
        `min_relevance`, `diversity`, `rerank`, `after` and `wait` of `Evervec.search`.
        """
        if refused := options.keys() & {"kind", "rows", "offset", "group_by", "groups", "fields"}:
            raise InvalidArgument(f"{', '.join(sorted(refused))}: not for the search of a model")

        rows = self._rows(among, using, {})
        alias = self._database(rows, using)
        options["filter"] = self._filter(filter, alias)

        def find(ev: Evervec, size: int) -> list[Hit]:
            return ev.search(query, size, kind=self.kind, **options)

        return self._found(find, k, rows, tenant, alias, all=among is None, stale=stale)

    async def asearch(self, query: str | None = None, k: int = 10, **options: Any) -> Any:
        """`search` for asyncio: returns the queryset, for `async for` and the like."""
        return await sync_to_async(self.search)(query, k, **options)

    def similar(
        self,
        instance: Any,
        k: int = 10,
        *,
        among: Any = None,
        tenant: str | None = None,
        using: str | None = None,
        stale: bool = False,
        filter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """A queryset of the `k` instances that are most similar to an instance, which must be
        embedded already. Otherwise like `search`; the database is that of the instance."""
        rows = self._rows(among, using, {"instance": instance})
        alias = using or router.db_for_write(self._searched, instance=instance)
        options["filter"] = self._filter(filter, alias)
        id = self.id_of(instance)

        def find(ev: Evervec, size: int) -> list[Hit]:
            return ev.similar(self.kind, id, size, **options)

        return self._found(find, k, rows, tenant, alias, all=among is None, stale=stale)

    async def asimilar(self, instance: Any, k: int = 10, **options: Any) -> Any:
        """`similar` for asyncio."""
        return await sync_to_async(self.similar)(instance, k, **options)

    def id_of(self, instance: Any) -> str:
        """The id of an instance's record."""
        model = self._searched
        connection = connections[instance._state.db or router.db_for_write(model)]
        values = [getattr(instance, field.attname) for field in model._meta.pk_fields]
        attachment = self.declaration.attachment(model, "")
        return attachment.id_of(stored_key(model, values, connection))

    def _found(
        self,
        find: Callable[[Evervec, int], list[Hit]],
        k: int,
        rows: Any,
        tenant: str | None,
        alias: str,
        *,
        all: bool,
        stale: bool,
    ) -> Any:
        """The queryset of the first `k` hits that have a row. If there are too few among the first
        hits, all that a search may return are looked at. `all`: hardly any row is left out."""
        ev = self.store(alias)
        ev = ev.of(tenant or ev.tenant)
        most = ev.settings.most_hits
        first = k if all else max(k, min(_MORE * k, most))
        hits = find(ev, first)
        chosen = self._chosen(ev, rows, hits, stale=stale)
        if len(chosen) < k and len(hits) == first < most:
            chosen = self._chosen(ev, rows, find(ev, most), stale=stale)
        return self._ordered(rows, dict(chosen[:k]))

    def _rows(self, among: Any, using: str | None, hints: dict[str, Any]) -> Any:
        """The rows to choose from; `hints` are those of Django's database routers."""
        if among is None:
            return self.model._default_manager.db_manager(using, hints).all()
        if isinstance(among, BaseManager):
            among = among.all()
        if not isinstance(among, QuerySet):
            given = type(among).__name__
            raise InvalidArgument(
                f"among: needs a queryset of {self.model.__name__}, not a {given}"
            )
        if not issubclass(among.model, self._searched):
            raise InvalidArgument(
                f"among: a queryset of {among.model.__name__}, not of {self.model.__name__}"
            )
        if using is not None and among._db is None:
            among = among.using(using)
        whole, chosen = among.all(), among.values("pk")
        if among.query.combinator:  # such as a union, which cannot be filtered
            whole = among.model._base_manager.using(among.db)
        elif among.query.is_sliced:
            whole.query.clear_limits()
        else:
            return among
        return whole.filter(pk__in=chosen)

    def _database(self, rows: Any, using: str | None) -> str:
        """The database whose store is searched: that to which Django would write the rows."""
        alias: str = using or rows._db or router.db_for_write(self._searched, **rows._hints)
        return alias

    def _filter(self, given: Any, alias: str) -> Any:
        return filter_of(given, self._searched, self.declaration, connections[alias])

    def _chosen(
        self, ev: Evervec, rows: Any, hits: list[Hit], *, stale: bool
    ) -> list[tuple[Any, Hit]]:
        """The hits whose rows are there and unchanged, with their primary keys."""
        found = [
            (key, hit) for hit in hits if (key := primary_key(self._searched, hit.id)) is not None
        ]
        keys = [key for key, _ in found]
        there = set(rows.filter(_one_of(keys)).order_by().values_list("pk", flat=True))
        found = [(key, hit) for key, hit in found if key in there]
        if not stale:
            fresh = ev.attachments.unchanged(ev.tenant, self.kind, [hit.id for _, hit in found])
            found = [(key, hit) for key, hit in found if hit.id in fresh]
        return found

    def _ordered(self, rows: Any, hits: Mapping[Any, Hit]) -> Any:
        if not hits:
            return rows.none()
        places = [When(pk=key, then=Value(place)) for place, key in enumerate(hits)]
        found = rows.filter(_one_of(list(hits)))
        found = found.order_by(Case(*places, output_field=IntegerField()))
        if issubclass(found._iterable_class, ModelIterable):
            found._iterable_class = FoundIterable
            found._hints = {**found._hints, _HITS: dict(hits)}
        return found


def _one_of(keys: Sequence[Any]) -> Q:
    """A condition for rows with one of the keys. Django nests a condition on composite keys one
    deeper with each of them, and SQLite allows a depth of 1,000."""
    parts = [keys[start : start + _AT_ONCE] for start in range(0, max(len(keys), 1), _AT_ONCE)]
    return Q(*(Q(pk__in=part) for part in parts), _connector=Q.OR)


class FoundIterable(ModelIterable):
    """Gives each instance of a search its hit."""

    def __iter__(self) -> Iterator[Any]:
        hits: Mapping[Any, Hit] = self.queryset._hints.get(_HITS, {})
        for instance in super().__iter__():
            instance.evervec_hit = hits.get(instance.pk)
            yield instance
