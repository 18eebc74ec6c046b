"""One transaction for your table and its embedding, with psycopg on PostgreSQL.

python examples/transaction_psycopg.py postgresql://user@host/database
"""

import sys

import psycopg

import evervec


def main(url: str) -> None:
    with evervec.open(url, embedder="hashing") as ev, psycopg.connect(url) as conn:
        with conn.transaction():  # commits the row and its job together
            conn.execute("create table products (id integer primary key, name text)")
            conn.execute("insert into products values (1, 'a red bicycle')")
            ev.add("product", "a red bicycle", id=1, conn=conn)

        with conn.transaction(force_rollback=True):  # rolls back the row and its job
            conn.execute("insert into products values (2, 'never sold')")
            ev.add("product", "never sold", id=2, conn=conn)

        ev.process_all()
        print([hit.id for hit in ev.search("bicycle")])


if __name__ == "__main__":
    main(sys.argv[1])
