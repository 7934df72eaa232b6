package shop;

import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

@Component
class Billing {
    private final Outbox outbox;
    private final JdbcClient jdbc;
    private final ObjectMapper json;

    Billing(Outbox outbox, JdbcClient jdbc, ObjectMapper json) {
        this.outbox = outbox;
        this.jdbc = jdbc;
        this.json = json;
    }

    /** Writes the invoice of an order, unless the message arrived before. */
    @KafkaListener(topics = "${TOPIC:orders.taken}")
    @Transactional
    public void receive(String body, @Header("rowrelay-message-id") String messageId, @Header(KafkaHeaders.RECEIVED_KEY) String key) throws JsonProcessingException {
        if (outbox.isFirst("billing", messageId)) {
            jdbc.sql("INSERT INTO invoices (order_key, total) VALUES (?, ?)")
                .params(key, json.readValue(body, Order.class).total)
                .update();
        }
    }
}
