"""Publish a message in the transaction of its business change, and apply one exactly once."""

import json
import os
import sys

import psycopg


def place(db: psycopg.Connection, order: str, total: int) -> None:
    """Place an order and publish that it was placed, or do neither."""
    with db.transaction():
        db.execute("INSERT INTO orders (id, total) VALUES (%s, %s)", (order, total))
        data = json.dumps({"order_id": order, "total": total})
        db.execute(
            "SELECT postrider_publish('orders', %s::text, 'order.placed', %s::text, source => 'shop-python')",
            (f"order/{order}", data),
        )
        if total < 0:
            raise ValueError("the total is negative")


def apply(db: psycopg.Connection, message_id: str, order: str) -> bool:
    """Ship an order, unless the message was applied before."""
    with db.transaction():
        claim = db.execute("INSERT INTO processed (message_id) VALUES (%s) ON CONFLICT DO NOTHING", (message_id,))
        if claim.rowcount == 0:
            return False
        db.execute("UPDATE orders SET shipped = shipped + 1 WHERE id = %s", (order,))
        return True


if __name__ == "__main__":
    command, first, second = sys.argv[1:]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        if command == "place":
            place(connection, first, int(second))
        else:
            print("applied" if apply(connection, first, second) else "duplicate")
