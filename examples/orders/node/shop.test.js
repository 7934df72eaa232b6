import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { withDrizzle, withPrisma, withTypeORM } from "./libraries.js";
import { invoice, pool, take } from "./shop.js";

const rows = async (text) => (await pool.query(text)).rows;

beforeEach(() => pool.query("TRUNCATE orders, invoices, rowrelay.outbox, rowrelay.inbox"));
after(() => pool.end());

for (const [name, write] of Object.entries({ pg: take, Drizzle: withDrizzle, Prisma: withPrisma, TypeORM: withTypeORM })) {
  test(`${name}: an order has its message`, async () => {
    await write({ ID: 42, Total: 7 });
    assert.deepEqual(await rows("SELECT topic, message_key, payload_text FROM rowrelay.outbox"), [
      { topic: "orders.taken", message_key: "order-42", payload_text: '{"ID":42,"Total":7}' },
    ]);
    await assert.rejects(write({ ID: 42, Total: 8 })); // a repeated order
    assert.equal((await rows("SELECT FROM rowrelay.outbox")).length, 1);
  });
}

test("a duplicate has no second effect", async () => {
  for (const [id, key] of [["a", "order-1"], ["a", "order-1"], ["b", "order-2"]]) {
    await invoice(id, key, { Total: 7 });
  }
  assert.equal((await rows("SELECT FROM invoices")).length, 2);
});
