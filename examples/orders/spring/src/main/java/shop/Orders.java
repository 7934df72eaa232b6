package shop;

import org.springframework.http.HttpStatus;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

@RestController
class Orders {
    private final OrderRepository orders;
    private final Outbox outbox;

    Orders(OrderRepository orders, Outbox outbox) {
        this.orders = orders;
        this.outbox = outbox;
    }

    /** Takes an order and announces it. JPA and JdbcClient share the transaction. */
    @PostMapping("/orders")
    @ResponseStatus(HttpStatus.CREATED)
    @Transactional
    public void take(@RequestBody Order order) {
        orders.save(order);
        outbox.send("orders.taken", "order-" + order.id, order);
    }
}
