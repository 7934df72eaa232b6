-- name: TakeOrder :exec
INSERT INTO orders (id, total) VALUES ($1, $2);
