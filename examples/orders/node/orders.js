// Orders accepts orders over HTTP, and writes each order with its message in one
// transaction with Drizzle. A separate relay delivers the messages.
import { createServer } from "node:http";
import { json } from "node:stream/consumers";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";

const orders = pgTable("orders", {
  id: bigint({ mode: "number" }).primaryKey(),
  total: bigint({ mode: "number" }).notNull(),
});

// The columns of the outbox that an application writes. rowrelay migrate creates the table.
const outbox = pgTable("outbox", {
  topic: text().notNull(),
  messageKey: text("message_key"),
  payloadText: text("payload_text"),
});

const db = drizzle(process.env.DATABASE_URL);

const take = (order) =>
  db.transaction(async (tx) => {
    await tx.insert(outbox).values({
      topic: "orders.taken",
      messageKey: `order-${order.ID}`,
      payloadText: JSON.stringify(order),
    });
    await tx.insert(orders).values({ id: order.ID, total: order.Total });
  });

const server = createServer(async (request, response) => {
  try {
    await take(await json(request));
    response.writeHead(201).end();
  } catch (error) {
    response.writeHead(409).end(String(error.cause ?? error));
  }
});

const [host, port] = process.env.LISTEN.split(":");
server.listen(Number(port), host, () => console.log(`http://${host}:${server.address().port}`));
