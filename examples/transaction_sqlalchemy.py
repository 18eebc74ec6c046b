"""One transaction for your objects and their embeddings, with SQLAlchemy: ORM and Core.

python examples/transaction_sqlalchemy.py shop.db
python examples/transaction_sqlalchemy.py postgresql://user@host/database
"""

import sys

from sqlalchemy import create_engine, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import evervec


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


def main(store: str) -> None:
    if store.startswith("postgresql://"):
        engine = create_engine(store.replace("postgresql://", "postgresql+psycopg://"))
    else:
        engine = create_engine(f"sqlite:///{store}")
    with evervec.open(store, embedder="hashing") as ev:
        Base.metadata.create_all(engine)

        with Session(engine) as session:  # the ORM
            session.add(Product(id=1, name="a red bicycle"))
            session.flush()
            ev.add("product", "a red bicycle", id=1, conn=session)
            session.commit()  # commits the row and its job together

            session.add(Product(id=2, name="never sold"))
            session.flush()
            ev.add("product", "never sold", id=2, conn=session)
            session.rollback()  # rolls back the row and its job

        with engine.begin() as conn:  # Core
            conn.execute(insert(Product).values(id=3, name="a blue bicycle"))
            ev.add("product", "a blue bicycle", id=3, conn=conn)

        ev.process_all()
        print(sorted(hit.id for hit in ev.search("bicycle")))
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1])
