import { bigint, pgTable, text } from "drizzle-orm/pg-core";

export const orders = pgTable("orders", {
  id: bigint({ mode: "number" }).primaryKey(),
  total: bigint({ mode: "number" }).notNull(),
});

export const invoices = pgTable("invoices", {
  orderKey: text("order_key").primaryKey(),
  total: bigint({ mode: "number" }).notNull(),
});
