// Statements that write messages to rowrelay's outbox, and that recognise messages which arrive again. Run them in your
// library's transaction. Don't declare these tables in your Drizzle, Prisma or TypeORM schema: the library would then create
// or change them.

export const message = (topic, key, payload) => ({
  text: `INSERT INTO rowrelay.outbox (topic, message_key, payload_text, headers)
         VALUES ($1, $2, $3, $4::json)`,
  values: [topic, key, JSON.stringify(payload), JSON.stringify({ "content-type": "application/json" })],
});

// The statement inserts a row if the consumer receives the message for the first time.
export const receipt = (consumer, messageId) => ({
  text: `INSERT INTO rowrelay.inbox (consumer, message_id)
         VALUES ($1, $2)
         ON CONFLICT DO NOTHING`,
  values: [consumer, messageId],
});
