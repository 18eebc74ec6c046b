"""One transaction for your table and its embedding, with Python's sqlite3 module.

python examples/transaction_sqlite3.py shop.db
"""

import sqlite3
import sys

import evervec


def main(path: str) -> None:
    with evervec.open(path, embedder="hashing") as ev, sqlite3.connect(path) as conn:
        conn.execute("create table if not exists products (id integer primary key, name text)")
        conn.execute("insert into products values (1, 'a red bicycle')")
        ev.add("product", "a red bicycle", id=1, conn=conn)
        conn.commit()  # commits the row and its job together

        conn.execute("insert into products values (2, 'never sold')")
        ev.add("product", "never sold", id=2, conn=conn)
        conn.rollback()  # rolls back the row and its job

        ev.process_all()
        print([hit.id for hit in ev.search("bicycle")])
    conn.close()


if __name__ == "__main__":
    main(sys.argv[1])
