-- locks: watermark_moves
delete from {prefix}watermark_moves m where exists (select from {prefix}watermark_moves l
    where l.consumer = m.consumer and l.partition = m.partition and l.epoch = m.epoch and l.n > m.n);
alter table {prefix}watermark_moves drop column mark, drop column consumed;
