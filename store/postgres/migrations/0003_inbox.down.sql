-- locks: claims, effects, versions, watermark_moves, watermarks
-- Consumers have cursors at the end of the log, which programs of the older version would take for those of relays.
delete from {prefix}leases where relay in (select relay from {prefix}cursors where position = 9223372036854775806);
delete from {prefix}cursors where position = 9223372036854775806;
drop table {prefix}effects, {prefix}versions, {prefix}watermark_moves, {prefix}watermarks, {prefix}claims;
drop sequence {prefix}aside_seq;
