// Publish a message in the transaction of its business change, and apply one exactly once.
import pg from "pg";

/** Runs work in a transaction. */
async function inTransaction<T>(db: pg.Client, work: () => Promise<T>): Promise<T> {
  await db.query("BEGIN");
  try {
    const result = await work();
    await db.query("COMMIT");
    return result;
  } catch (error) {
    await db.query("ROLLBACK");
    throw error;
  }
}

/** Places an order and publishes that it was placed, or does neither. */
async function place(db: pg.Client, order: string, total: number): Promise<void> {
  await inTransaction(db, async () => {
    await db.query("INSERT INTO orders (id, total) VALUES ($1, $2)", [order, total]);
    const data = JSON.stringify({ order_id: order, total });
    await db.query("SELECT postrider_publish('orders', $1::text, 'order.placed', $2::text, source => 'shop-typescript')", [`order/${order}`, data]);
    if (total < 0) {
      throw new Error("the total is negative");
    }
  });
}

/** Ships an order, unless the message was applied before. */
async function apply(db: pg.Client, messageId: string, order: string): Promise<boolean> {
  return inTransaction(db, async () => {
    const claim = await db.query("INSERT INTO processed (message_id) VALUES ($1) ON CONFLICT DO NOTHING", [messageId]);
    if (claim.rowCount === 0) {
      return false;
    }
    await db.query("UPDATE orders SET shipped = shipped + 1 WHERE id = $1", [order]);
    return true;
  });
}

const [command, first, second] = process.argv.slice(2);
const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();
try {
  if (command === "place") {
    await place(db, first, Number(second));
  } else {
    console.log((await apply(db, first, second)) ? "applied" : "duplicate");
  }
} finally {
  await db.end();
}
