-- oldest program: 10
-- oldest publisher: 6
-- locks: records
-- Records are listed by ID, byte by byte.
create index {prefixname}records_list on {prefix}records (kind, id collate "C");

-- Of the watermarks that a consumer in a group has left in a partition, the newest becomes its position, unless it has one: it goes on from
-- there when it reads the log without a group.
insert into {prefix}records (kind, id, body)
select distinct on (w.consumer, w.partition) 'position', octet_length(w.consumer)::text || ':' || w.consumer || ':' || w.partition,
    convert_to((jsonb_build_object('incarnation', w.epoch, 'offset', w.position, 'end', w.position) ||
        case when w.mark = '' then '{}' else jsonb_build_object('anchors',
            jsonb_build_array(jsonb_build_object('o', w.position, 'm', w.mark))) end)::text, 'UTF8')
from (
    select distinct on (consumer, partition, epoch) *
    from {prefix}watermark_moves
    order by consumer, partition, epoch, n desc
) w
order by w.consumer, w.partition, w.moved_at desc
on conflict do nothing;
