create table orders (id text primary key, total integer not null);
