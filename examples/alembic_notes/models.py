"""The application's models, and its database."""

import os

from sqlalchemy import Text, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from evervec.integrations.sqlalchemy import indexed

STORE = os.environ.get("EVERVEC_STORE", "notes.db")
"""a file, or postgresql://…: the application and evervec share one database"""
URL = (
    STORE.replace("postgresql://", "postgresql+psycopg://")
    if "://" in STORE
    else f"sqlite:///{STORE}"
)


class Base(DeclarativeBase):
    pass


@indexed(kind="note", text="{title}\n\n{body}", metadata=["author"])
class Note(Base):
    """Its table is attached by migrations/versions/0001_notes.py."""

    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(Text)
    body: Mapped[str]
    author: Mapped[str | None]


engine = create_engine(URL)
Session = sessionmaker(engine)
