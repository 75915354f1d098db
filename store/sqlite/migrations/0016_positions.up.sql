-- Of the watermarks that a consumer in a group has left in a partition, the newest becomes its position, unless it has one: it goes on from
-- there when it reads the log without a group.
INSERT INTO {prefix}records (kind, id, at, body)
SELECT 'position', length(CAST(w.consumer AS BLOB)) || ':' || w.consumer || ':' || w.partition,
  CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER),
  CAST(CASE WHEN coalesce(m.mark, '') = ''
    THEN json_object('incarnation', w.epoch, 'offset', w.position, 'end', w.position)
    ELSE json_object('incarnation', w.epoch, 'offset', w.position, 'end', w.position,
      'anchors', json_array(json_object('o', w.position, 'm', m.mark))) END AS BLOB)
FROM {prefix}watermarks w LEFT JOIN {prefix}watermark_marks m
  ON m.consumer = w.consumer AND m.partition = w.partition AND m.epoch = w.epoch AND m.slot = 0 AND m.position = w.position
WHERE NOT EXISTS (
  SELECT 1 FROM {prefix}watermarks n WHERE n.consumer = w.consumer AND n.partition = w.partition
    AND (n.moved > w.moved OR n.moved = w.moved AND n.epoch > w.epoch))
ON CONFLICT DO NOTHING;
