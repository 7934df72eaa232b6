package shop;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.transaction.annotation.Transactional;

/** Each test runs in a transaction that is rolled back. */
@SpringBootTest(properties = "spring.kafka.listener.auto-startup=false")
@Transactional
class ShopTest {
    @Autowired Orders orders;
    @Autowired Billing billing;
    @Autowired JdbcClient jdbc;

    @Test
    void anOrderHasItsMessage() {
        orders.take(order());
        assertThat(jdbc.sql("SELECT topic, message_key, payload_text FROM rowrelay.outbox").query().singleRow())
            .containsEntry("topic", "orders.taken")
            .containsEntry("message_key", "order-42")
            .containsEntry("payload_text", "{\"id\":42,\"total\":7}");
    }

    @Test
    void aDuplicateHasNoSecondEffect() throws Exception {
        for (String id : new String[] {"a", "a"}) {
            billing.receive("{\"id\":42,\"total\":7}", id, "order-42");
        }
        assertThat(jdbc.sql("SELECT total FROM invoices").query(Long.class).list()).containsExactly(7L);
    }

    private Order order() {
        Order order = new Order();
        order.id = 42L;
        order.total = 7;
        return order;
    }
}
