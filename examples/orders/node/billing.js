// Billing receives the messages about orders from a queue of RabbitMQ.
import amqp from "amqplib";
import { invoice } from "./shop.js";

const connection = await amqp.connect(process.env.AMQP_URL);
connection.on("close", () => process.exit(1)); // the broker has closed it, for example because it is being restarted
const channel = await connection.createChannel();

const receive = async (message) => {
  const { messageId, headers } = message.properties;
  await invoice(messageId, headers["rowrelay-key"], JSON.parse(message.content));
  channel.ack(message); // after the commit, also for a message that arrived before
  console.log("received", messageId);
};

await channel.prefetch(50);
let last = Promise.resolve(); // amqplib doesn't wait for receive, so the messages form a chain, which keeps their order
await channel.consume(process.env.QUEUE, (message) => {
  last = last.then(() => receive(message)); // if receive fails, the process ends, and the broker delivers the message again
});
