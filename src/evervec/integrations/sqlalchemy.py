"""SQLAlchemy: models that are declared as indexed, and sessions whose changes are followed.

`indexed` declares a model, for Alembic to attach its table: triggers then see every change, of any
program. `follow` is for databases where triggers are not possible: it sees what sessions flush, and
warns about statements that pass it by.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from evervec.aio import AsyncEvervec
from evervec.aio.connections import is_for_asyncio
from evervec.errors import EvervecError, InvalidArgument
from evervec.facade import Evervec
from evervec.runtime.packages import install_command
from evervec.tables.base import Attachment, Row, attachment

try:
    from sqlalchemy import Connection, Delete, Engine, Insert, Update, event, inspect, select
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Mapper, Session, object_session
    from sqlalchemy.util import await_only
except ImportError as error:
    raise EvervecError(
        f"SQLAlchemy is not installed: {install_command('evervec[sqlalchemy]')}"
    ) from error

T = TypeVar("T")

DECLARED = "evervec"
"""the key of `Table.info` under which a table's declarations are"""
_CHANGES = "evervec_changes"
"""the key of `Session.info` under which the changes of a flush are collected"""


class UnseenStatement(UserWarning):
    """A statement changed rows of a followed model without its records: it was no flush."""


def indexed(
    *,
    text: str | Iterable[str],
    kind: str | None = None,
    id: str | Iterable[str] | None = None,
    metadata: Iterable[str] = (),
    title: str | None = None,
    weight: str | None = None,
    updated_at: str | None = None,
    tenant: str | None = None,
    owner: str = "default",
) -> Callable[[type[T]], type[T]]:
    """Declare that the table of a model is to be attached, for `alembic revision --autogenerate`.
    The arguments are those of `Evervec.attach`, with names of columns; `id` is the primary key if
    it is not given."""

    def declare(model: type[T]) -> type[T]:
        table: Any = inspect(model).local_table
        given: dict[str, Any] = {
            "text": text if isinstance(text, str) else list(text), "kind": kind,
            "id": [column.name for column in table.primary_key] if id is None else id,
            "metadata": list(metadata), "title": title, "weight": weight,
            "updated_at": updated_at, "tenant": tenant, "owner": owner,
        }  # fmt: skip
        for name in attachment(table.fullname, **given).columns:
            if name not in table.columns:
                raise InvalidArgument(
                    f"{table.fullname} has no column {name!r}; it has "
                    f"{', '.join(table.columns.keys())}"
                )
        table.info.setdefault(DECLARED, []).append(given)
        return model

    return declare


_STATEMENTS = (Insert, Update, Delete)
_TEXT = "the text of a function"
Key = tuple[str, str]
"""tenant and id of a record"""


def follow(
    sessions: Any,
    model: type[Any],
    ev: Evervec | AsyncEvervec,
    *,
    text: str | Iterable[str] | Callable[[Any], str],
    kind: str | None = None,
    id: str | Iterable[str] | None = None,
    metadata: Iterable[str] = (),
    title: str | None = None,
    weight: str | None = None,
    updated_at: str | None = None,
    tenant: str | None = None,
) -> Followed:
    """Keep the records of a kind in step with what sessions flush, in the same transaction.

    `sessions`: a `sessionmaker`, `async_sessionmaker`, `scoped_session`, or a class of sessions.
    `ev`: a store in the same database; an `AsyncEvervec` for asynchronous sessions. The other
    arguments are those of `Evervec.attach`, with names of attributes; `text` may also be a function
    of an object, and `id` is the primary key if it is not given. Rows that exist already are
    saved by `Followed.save`.

    A statement that is not a flush (`update()`, `delete()`, `bulk_insert_mappings`, Core) raises
    the warning `UnseenStatement`, as far as it uses the same engine. SQL as text, cascades of the
    database and other programs are not seen at all: attach the table if you can.
    """
    mapper: Mapper[Any] = inspect(model)
    if id is None:
        id = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    render = text if callable(text) else None
    wanted = attachment(
        mapper.local_table.fullname, kind, id, [_TEXT] if callable(text) else text, metadata,  # type: ignore[attr-defined]
        title=title, weight=weight, updated_at=updated_at, tenant=tenant, owner=ev.tenant,
    )  # fmt: skip
    for name in wanted.columns:
        if name != _TEXT and name not in mapper.column_attrs:
            raise InvalidArgument(
                f"{model.__name__} has no column attribute {name!r}; it has "
                f"{', '.join(mapper.column_attrs.keys())}"
            )
    followed = Followed(ev, model, wanted, render)
    followed.listen(_listened(sessions))
    return followed


def _listened(sessions: Any) -> Any:
    """What SQLAlchemy's session events accept."""
    if isinstance(sessions, type) and issubclass(sessions, AsyncSession):
        raise InvalidArgument(
            "events are those of synchronous sessions: give the async_sessionmaker instead"
        )
    if not isinstance(sessions, async_sessionmaker):
        return sessions
    base = sessions.kw.get("sync_session_class", Session)
    own: type[Session] = type(f"Followed{base.__name__}", (base,), {})
    sessions.configure(sync_session_class=own)
    return own


@dataclass(eq=False)
class _Changes:
    """What one flush changed."""

    saved: dict[int, Any] = field(default_factory=dict)
    """objects by their address"""
    gone: set[Key] = field(default_factory=set)
    """the records of deleted objects, and of objects before they changed"""


class Followed:
    """A model whose records follow the sessions of a factory; created by `follow`."""

    def __init__(
        self,
        ev: Evervec | AsyncEvervec,
        model: type[Any],
        attachment: Attachment,
        render: Callable[[Any], str] | None,
    ) -> None:
        self.kind = attachment.kind
        self._ev = ev
        self._model = model
        self._attachment = attachment
        self._render = render
        self._tables = set(inspect(model).tables)
        self._sessions: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()
        self._followed: WeakSet[Session] = WeakSet()
        self._engines: WeakSet[Engine] = WeakSet()

    def listen(self, sessions: Any) -> None:
        event.listen(sessions, "after_begin", self._watch)
        event.listen(sessions, "after_flush_postexec", self._write)
        event.listen(sessions, "after_soft_rollback", self._forget)
        event.listen(self._model, "before_insert", self._begin, propagate=True)
        for name in ("before_update", "before_delete"):
            event.listen(self._model, name, self._before, propagate=True)
        for name in ("after_insert", "after_update"):
            event.listen(self._model, name, self._after, propagate=True)

    def save(self, session: Session, objects: Iterable[Any]) -> None:
        """Save the records of objects in the transaction of a session: of rows that existed before,
        or that a statement changed. In an `AsyncSession`: `await session.run_sync(followed.save,
        objects)`."""
        self._apply(session, _Changes({id(one): one for one in objects}))

    # during a flush
    def _begin(self, mapper: Mapper[Any], conn: Connection, target: Any) -> _Changes | None:
        """The changes of the flush, which has begun to write; None in a session that is not
        followed. (A session's own event also comes for flushes that find nothing to write, and not
        for their end.)"""
        session = object_session(target)
        if session is None or session not in self._followed:
            return None
        changes: dict[Followed, _Changes] = session.info.setdefault(_CHANGES, {})
        return changes.setdefault(self, _Changes())

    def _changes(self, session: Session | None) -> _Changes | None:
        return session.info.get(_CHANGES, {}).get(self) if session is not None else None

    def _forget(self, session: Session, *_: Any) -> _Changes | None:
        found: _Changes | None = session.info.get(_CHANGES, {}).pop(self, None)
        return found

    def _before(self, mapper: Mapper[Any], conn: Connection, target: Any) -> None:
        """Remember which record the row was: its key or its tenant may change."""
        if (changes := self._begin(mapper, conn, target)) is not None:
            changes.gone.add(self._old_key(mapper, conn, target))

    def _old_key(self, mapper: Mapper[Any], conn: Connection, target: Any) -> Key:
        state: Any = inspect(target)
        names = self._attachment.identity
        old = {name: state.attrs[name].history for name in names}
        known = {n: h.deleted or h.unchanged for n, h in old.items()}
        if not all(known.values()):  # overwritten or expired without having been loaded
            columns = [mapper.column_attrs[name].columns[0] for name in names]
            where = [c == v for c, v in zip(mapper.primary_key, state.identity, strict=True)]
            row = conn.execute(select(*columns).where(*where)).first()
            known = {n: [v] for n, v in zip(names, row or [None] * len(names), strict=True)}
        return self._key({name: found[0] for name, found in known.items()})

    def _key(self, values: dict[str, Any]) -> Key:
        made = self._attachment
        tenant = values[made.tenant] if made.tenant else None
        return str(tenant or made.owner), made.id_of([values[name] for name in made.key])

    def _after(self, mapper: Mapper[Any], conn: Connection, target: Any) -> None:
        if (changes := self._changes(object_session(target))) is not None:
            changes.saved[id(target)] = target

    def _write(self, session: Session, *_: Any) -> None:
        if (changes := self._forget(session)) and (changes.saved or changes.gone):
            with session.no_autoflush:
                self._apply(session, changes)

    def _apply(self, session: Session, changes: _Changes) -> None:
        made, gone = self._attachment, set(changes.gone)
        saved: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for target in changes.saved.values():
            names = [name for name in made.columns if name != _TEXT]
            values = {name: getattr(target, name) for name in names}
            if self._render is not None:
                values[_TEXT] = self._render(target)
            tenant, id = self._key(values)
            content = made.content(Row(id, tenant, values, ()))
            if content is None:  # without text it is no record
                gone.add((tenant, id))
            else:
                saved[tenant].append(content)
                gone.discard((tenant, id))
        conn = session.connection().connection.driver_connection
        if is_for_asyncio(conn):
            await_only(self._send(conn, gone, saved))
            return
        ev = self._ev.sync if isinstance(self._ev, AsyncEvervec) else self._ev
        for tenant, id in sorted(gone):
            ev.of(tenant).delete(self.kind, id, conn=session)
        for tenant, contents in sorted(saved.items()):
            for _ in ev.of(tenant).add_many(self.kind, contents, conn=session):
                pass

    async def _send(
        self, conn: Any, gone: set[Key], saved: dict[str, list[dict[str, Any]]]
    ) -> None:
        if not isinstance(self._ev, AsyncEvervec):
            raise InvalidArgument(
                "asynchronous sessions need a store that was opened with evervec.aopen"
            )
        for tenant, id in sorted(gone):
            await self._ev.of(tenant).delete(self.kind, id, conn=conn)
        for tenant, contents in sorted(saved.items()):
            async for _ in self._ev.of(tenant).add_many(self.kind, contents, conn=conn):
                pass

    # statements that are not a flush
    def _watch(self, session: Session, _: Any, conn: Connection) -> None:
        self._sessions[conn] = session
        self._followed.add(session)
        if conn.engine not in self._engines:
            self._engines.add(conn.engine)
            event.listen(conn.engine, "before_execute", self._warn)
            if not conn._has_events:  # it was opened before, so it does not ask its engine
                event.listen(conn, "before_execute", self._warn)

    def _warn(self, conn: Connection, statement: Any, *_: Any) -> None:
        if not isinstance(statement, _STATEMENTS):
            return
        if statement.table not in self._tables or self._changes(self._sessions.get(conn)):
            return
        what = next(kind for kind in _STATEMENTS if isinstance(statement, kind)).__name__.lower()
        warnings.warn(
            f"{what}() changes rows of {statement.table} outside a flush, so the records of kind "
            f"{self.kind!r} are not changed: change objects of {self._model.__name__} in a "
            "session that is followed, save the records with Followed.save() or delete them with "
            "ev.delete(), or attach the table, whose triggers see every change",
            UnseenStatement,
            stacklevel=2,
        )
