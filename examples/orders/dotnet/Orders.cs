// The tests run only the statements in statements.sql.
public class Orders(ShopContext shop)
{
    public async Task Take(Order order, CancellationToken cancel)
    {
        await using var transaction = await shop.Database.BeginTransactionAsync(cancel);
        shop.Orders.Add(order);
        await shop.SaveChangesAsync(cancel);
        var (key, body) = ($"order-{order.Id}", JsonSerializer.Serialize(new { ID = order.Id, order.Total }));
        await shop.Database.ExecuteSqlAsync(
            $"INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders.taken', {key}, {body})", cancel);
        await transaction.CommitAsync(cancel);
    }
}
