"""What others may do to an index behind evervec's back, by the means of the engine itself."""

import json
import uuid
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.qdrant.engine import NewPoint
from support.world import World

Fields = dict[str, Any]


class Saboteur:
    """Changes points of one version by hand: fields are `seq`, `hash`, `tenant`, `record`,
    `vector`, `text` and `metadata`, as far as an index has them."""

    doubles = True
    """the engine takes the same chunk twice"""

    def __init__(self, world: World, version: int) -> None:
        self.version = version

    def delete(self, number: int) -> None: ...

    def alter(self, number: int, **fields: Any) -> None:
        """All points of a record."""

    def copy(self, number: int, **fields: Any) -> None:
        """Put the points of a record there once more, changed in some fields."""

    def misplace(self, number: int) -> None:
        """Put a copy where points of another version would be."""


class _Sql(Saboteur):
    points: str
    version_clause = ""

    def __init__(self, world: World, version: int) -> None:
        super().__init__(world, version)
        self.db = world.ev.store.db  # type: ignore[attr-defined]
        numbered = "$" if world.store_name in ("postgres", "duckdb") else "?"
        self.marks = [f"{numbered}{n}" for n in range(1, 9)]

    def run(self, sql: str, *values: Any) -> list[Any]:
        with self.db.writing(durable=True) as conn:
            found: list[Any] = conn.execute(sql, values).fetchall()
        return found

    def delete(self, number: int) -> None:
        one = self.marks[0]
        self.run(
            f"delete from {self.points} where record = {one}{self.version_clause} returning 1",
            number,
        )

    def alter(self, number: int, **fields: Any) -> None:
        names = [name for name in fields if name not in ("text", "metadata")]
        what = ", ".join(f"{n} = {mark}" for n, mark in zip(names, self.marks[1:], strict=False))
        self.run(
            f"update {self.points} set {what} where record = {self.marks[0]}{self.version_clause} "
            "returning 1",
            number,
            *(self.as_stored(fields[name]) for name in names),
        )

    def as_stored(self, value: Any) -> Any:
        return value.tobytes() if isinstance(value, np.ndarray) else value

    def copy(self, number: int, **fields: Any) -> None:
        self.insert(self.points, number, fields)

    def insert(self, points: str, number: int, fields: Fields) -> None:
        names = ["record", "tenant", "seq", "position", "hash", "vector", *self.own]
        given = {**self.fresh(), **fields}
        chosen = [name for name in names if name in given]
        marks = dict(zip(chosen, self.marks[1:], strict=False))
        what = ", ".join(marks.get(name, name) for name in names)
        self.run(
            f"insert into {points} ({', '.join(names)}) select {what} from {self.points} "
            f"where record = {self.marks[0]}{self.version_clause} returning 1",
            number,
            *(self.as_stored(given[name]) for name in chosen),
        )

    own: tuple[str, ...] = ()

    def fresh(self) -> Fields:
        return {}


class _Rows(_Sql):
    points = "evervec_points"
    own = ("point", "version")

    def __init__(self, world: World, version: int) -> None:
        super().__init__(world, version)
        self.doubles = world.store_name == "duckdb"
        self.version_clause = f" and version = {version}"
        self._next = 10**9

    def fresh(self) -> Fields:
        self._next += 1
        return {"point": self._next}

    def misplace(self, number: int) -> None:
        self.copy(number, version=self.version + 1000)


class _Pgvector(_Sql):
    doubles = False

    def __init__(self, world: World, version: int) -> None:
        super().__init__(world, version)
        self.points = f"evervec.points_{version}"

    def as_stored(self, value: Any) -> Any:
        return str(value.tolist()) if isinstance(value, np.ndarray) else value

    def misplace(self, number: int) -> None:
        other = f"evervec.points_{self.version + 1000}"
        with self.db.writing(durable=True) as conn:
            conn.execute(f"create table if not exists {other} (like {self.points})")
        self.insert(other, number, {})


class _Lance(Saboteur):
    def __init__(self, world: World, version: int) -> None:
        # here: the import takes a second, and few tests need it
        import lancedb

        from evervec.indexes.lancedb.head import Head

        super().__init__(world, version)
        self.db = lancedb.connect(world.folder / "vectors")
        self.head = Head(world.ev.store, f"{world.ev.index.url}/{self.name}")

    name = "note_vectors_hashing_64"

    def counts(self) -> None:
        """What is done to the files of the version that counts: a later one is not read."""
        self.head.read()
        self.head.move(self.table.version)

    @property
    def table(self) -> Any:
        return self.db.open_table(self.name)

    def rows(self, number: int) -> list[Fields]:
        found: list[Fields] = self.table.search().where(f"record = {number}").to_list()
        return found

    def delete(self, number: int) -> None:
        self.table.delete(f"record = {number}")
        self.counts()

    def alter(self, number: int, **fields: Any) -> None:
        rows = self.rows(number)
        self.delete(number)
        self.table.add([{**row, **self.as_stored(fields)} for row in rows])
        self.counts()

    def as_stored(self, fields: Fields) -> Fields:
        made = dict(fields)
        if "metadata" in made:
            made["metadata"] = json.dumps(made["metadata"])
        return made

    def copy(self, number: int, **fields: Any) -> None:
        rows = self.rows(number)
        self.table.add([{**row, **self.as_stored(fields)} for row in rows])
        self.counts()

    def misplace(self, number: int) -> None:
        self.db.create_table("note_vectors_forgotten", self.table.to_arrow().slice(0, 0))
        self.db.open_table("note_vectors_forgotten").add(self.rows(number))


class _Qdrant(Saboteur):
    def __init__(self, world: World, version: int) -> None:
        super().__init__(world, version)
        index: Any = world.ev.index
        self.index, self.engine = index, index._engine
        self.vector = np.eye(64, dtype=np.float32)[0]

    def points(self, number: int) -> list[Any]:
        where = self.engine.all(self.engine.any_of("record", [number]))
        fields = ("record", "tenant", "kind", "version", "id", "seq", "hash", "position", "text",
                  "metadata")  # fmt: skip
        found: list[Any] = self.engine.scroll(self.name, where, fields)
        return found

    @property
    def name(self) -> str:
        return str(self.index._collection(self.version))

    def delete(self, number: int) -> None:
        ids = self.engine.ids(point.id for point in self.points(number))
        self.engine.update(self.name, [self.engine.delete_all(self.engine.all(ids))])

    def alter(self, number: int, **fields: Any) -> None:
        fields.pop("vector", None)
        for point in self.points(number):
            where = self.engine.all(self.engine.ids([point.id]))
            self.engine.update(self.name, [self.engine.set_payload(self.as_stored(fields), where)])

    def as_stored(self, fields: Fields) -> Fields:
        return {n: v.hex() if isinstance(v, bytes) else v for n, v in fields.items()}

    def copy(self, number: int, **fields: Any) -> None:
        made = [
            NewPoint(str(uuid.uuid4()), self.vector, {**point.payload, **self.as_stored(fields)})
            for point in self.points(number)
        ]
        everything = self.engine.all(self.engine.between("seq", lte=10**12))
        self.engine.update(self.name, [self.engine.upsert(made, everything, there=False)])

    def misplace(self, number: int) -> None:
        self.copy(number, version=self.version + 1000)


_BY_INDEX: dict[str, type[Saboteur]] = {
    "sqlite": _Rows, "duckdb": _Rows, "pgvector": _Pgvector, "lancedb": _Lance, "qdrant": _Qdrant,
    "qdrant-memory": _Qdrant, "qdrant-edge": _Qdrant,
}  # fmt: skip


def saboteur(world: World, version: int) -> Saboteur:
    return _BY_INDEX[world.index_name](world, version)


def run_sql(world: World, sql: str, *values: Any, alone: bool = False) -> None:
    """A statement in the store's own database; `alone`: outside of any transaction."""
    db = world.ev.store.db  # type: ignore[attr-defined]
    with db.reading() if alone else db.writing(durable=True) as conn:
        conn.execute(sql, values)


def drop_ledger(world: World, number: int) -> None:
    """Take out what the ledger says of a record."""
    table = "evervec.ledger" if world.store_name == "postgres" else "evervec_ledger"
    run_sql(world, f"delete from {table} where record = {number}")


def zeros() -> NDArray[np.float32]:
    return np.zeros(64, np.float32)
