// Writes an order and its message with Drizzle's own transaction, with Prisma and with TypeORM.
import { PrismaPg } from "@prisma/adapter-pg";
import prisma from "@prisma/client";
import { drizzle } from "drizzle-orm/node-postgres";
import { sql } from "drizzle-orm";
import { DataSource, EntitySchema } from "typeorm";
import { message } from "./outbox.js";
import { orders } from "./schema.js";
import { pool } from "./shop.js";

export const withDrizzle = async (order) => {
  await drizzle(pool).transaction(async (tx) => {
    await tx.insert(orders).values({ id: order.ID, total: order.Total });
    await tx.execute(sql`INSERT INTO rowrelay.outbox (topic, message_key, payload_text)
                         VALUES ('orders.taken', ${`order-${order.ID}`}, ${JSON.stringify(order)})`);
  });
};

export const withPrisma = async (order) => {
  const client = new prisma.PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });
  const { text, values } = message("orders.taken", `order-${order.ID}`, order);
  await client.$transaction(async (tx) => {
    await tx.order.create({ data: { id: order.ID, total: order.Total } });
    await tx.$executeRawUnsafe(text, ...values); // the text is a constant; values are parameters
  });
  await client.$disconnect();
};

const Order = new EntitySchema({
  name: "orders",
  columns: { id: { type: "bigint", primary: true }, total: { type: "bigint" } },
});

export const withTypeORM = async (order) => {
  const source = await new DataSource({ type: "postgres", url: process.env.DATABASE_URL, entities: [Order], synchronize: true }).initialize();
  const { text, values } = message("orders.taken", `order-${order.ID}`, order);
  await source.transaction(async (manager) => {
    await manager.insert(Order, { id: order.ID, total: order.Total });
    await manager.query(text, values);
  });
  await source.destroy();
};
