import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { message, receipt } from "./outbox.js";
import { invoices, orders } from "./schema.js";

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

// transaction runs a function with a pg client, and commits if the function doesn't fail.
export const transaction = async (work) => {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
};

// take writes an order and the message that announces it.
export const take = (order) =>
  transaction(async (client) => {
    await client.query(message("orders.taken", `order-${order.ID}`, order));
    await drizzle(client).insert(orders).values({ id: order.ID, total: order.Total });
  });

// invoice writes the invoice of an order, unless the message arrived before.
export const invoice = (messageId, orderKey, order) =>
  transaction(async (client) => {
    const { rowCount } = await client.query(receipt("billing", messageId));
    if (rowCount === 1) {
      await drizzle(client).insert(invoices).values({ orderKey, total: order.Total });
    }
  });
