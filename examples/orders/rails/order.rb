# The tests run only the statements in statements.sql.
class OutboxMessage < ApplicationRecord
  self.table_name = "outbox"
  self.primary_key = nil # the database sets the id and the other columns
end

class Order < ApplicationRecord
  def self.take!(id, total)
    transaction do
      OutboxMessage.insert!({ topic: "orders.taken", message_key: "order-#{id}", payload_text: { ID: id, Total: total }.to_json }, returning: false)
      create!(id: id, total: total)
    end
  end
end
