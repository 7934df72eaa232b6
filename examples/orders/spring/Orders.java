// The tests run only the statements in statements.sql.
@Service
class Orders {
    private final OrderRepository orders; // a JPA repository
    private final JdbcClient jdbc;
    private final ObjectMapper json;

    Orders(OrderRepository orders, JdbcClient jdbc, ObjectMapper json) {
        this.orders = orders;
        this.jdbc = jdbc;
        this.json = json;
    }

    // JpaTransactionManager gives JDBC the same connection, and so the same transaction.
    @Transactional
    public void take(Order order) throws JsonProcessingException {
        orders.save(order);
        jdbc.sql("INSERT INTO outbox (topic, message_key, payload_text) VALUES (?, ?, ?)")
            .params("orders.taken", "order-" + order.getId(), json.writeValueAsString(order))
            .update();
    }
}
