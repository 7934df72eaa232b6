import { defineConfig } from "prisma/config";
import { PrismaPg } from "@prisma/adapter-pg";

// The adapter splits a script at each semicolon, also inside functions. Prisma's own engine, which is not in its npm
// packages, sends the script as it is.
class Whole extends PrismaPg {
  async connect() {
    const adapter = await super.connect();
    adapter.executeScript = async (script) => void (await adapter.underlyingDriver().query(script));
    return adapter;
  }
}

export default defineConfig({
  engine: "js",
  experimental: { adapter: true },
  adapter: async () => new Whole({ connectionString: process.env.DATABASE_URL }),
  schema: "schema.prisma",
  migrations: { path: "migrations" },
});
