// Orders accepts orders over HTTP, and receives the messages about them from rowrelay's http sink.
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { invoice, take } from "./shop.js";

const webhook = new Webhook(process.env.SIGNING_SECRET);

const receive = async (request, body) => {
  let order;
  try {
    order = webhook.verify(body, request.headers);
  } catch (error) {
    if (error instanceof WebhookVerificationError) return 401;
    throw error;
  }
  await invoice(request.headers["webhook-id"], request.headers["rowrelay-key"], order);
  return 204; // also for a message that arrived before
};

const server = createServer(async (request, response) => {
  try {
    const body = await text(request);
    if (request.url === "/messages") {
      response.writeHead(await receive(request, body)).end();
    } else {
      await take(JSON.parse(body));
      response.writeHead(201).end();
    }
  } catch (error) {
    response.writeHead(409).end(String(error.cause ?? error)); // rowrelay tries the message again
  }
});

const [host, port] = process.env.LISTEN.split(":");
server.listen(Number(port), host, () => console.log(`http://${host}:${server.address().port}`));
