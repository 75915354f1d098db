drop function {prefix}publish(text, text, text, jsonb, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz);
drop function {prefix}publish(text, text, text, text, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz);
drop function {prefix}publish(text, text, text, bytea, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz);
