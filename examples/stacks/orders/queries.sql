-- name: InsertOrder :exec
insert into orders (id, total) values ($1, $2);

-- name: DeleteOrder :exec
delete from orders where id = $1;
