package shop;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;

/** Writes messages to rowrelay's outbox, and recognises messages that arrive again. */
@Component
class Outbox {
    private final JdbcClient jdbc;
    private final ObjectMapper json;

    Outbox(JdbcClient jdbc, ObjectMapper json) {
        this.jdbc = jdbc;
        this.json = json;
    }

    /** Writes a message in the caller's transaction. It is delivered if the transaction commits. */
    @Transactional(propagation = Propagation.MANDATORY)
    public void send(String topic, String key, Object payload) {
        jdbc.sql("""
            INSERT INTO rowrelay.outbox (topic, message_key, payload_text, headers)
            VALUES (?, ?, ?, ?::json)
            """)
            .params(topic, key, write(payload), "{\"content-type\": \"application/json\"}")
            .update();
    }

    /** Returns whether the consumer receives the message for the first time. */
    @Transactional(propagation = Propagation.MANDATORY)
    public boolean isFirst(String consumer, String messageId) {
        return jdbc.sql("""
            INSERT INTO rowrelay.inbox (consumer, message_id)
            VALUES (?, ?)
            ON CONFLICT DO NOTHING
            """)
            .params(consumer, messageId)
            .update() == 1;
    }

    private String write(Object payload) {
        try {
            return json.writeValueAsString(payload);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(e);
        }
    }
}
