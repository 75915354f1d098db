-- Of the watermarks that a consumer in a group has left in a partition, the newest becomes its position, unless it has one: it goes on from
-- there when it reads the log without a group.
INSERT IGNORE INTO {prefix}records (kind, id, at, body)
SELECT 'position', CONCAT(LENGTH(w.consumer), ':', w.consumer, ':', w.partition_id),
  CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED),
  CAST(IF(COALESCE(m.mark, '') = '',
    JSON_OBJECT('incarnation', CONVERT(w.epoch USING utf8mb4), 'offset', w.position, 'end', w.position),
    JSON_OBJECT('incarnation', CONVERT(w.epoch USING utf8mb4), 'offset', w.position, 'end', w.position,
      'anchors', JSON_ARRAY(JSON_OBJECT('o', w.position, 'm', CONVERT(m.mark USING utf8mb4))))) AS CHAR CHARACTER SET utf8mb4)
FROM {prefix}watermarks w LEFT JOIN {prefix}watermark_marks m
  ON m.consumer = w.consumer AND m.partition_id = w.partition_id AND m.epoch = w.epoch AND m.slot = 0 AND m.position = w.position
WHERE w.position IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM {prefix}watermarks n WHERE n.consumer = w.consumer AND n.partition_id = w.partition_id AND n.position IS NOT NULL
    AND (n.moved > w.moved OR n.moved = w.moved AND n.epoch > w.epoch));
