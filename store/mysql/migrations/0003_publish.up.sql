DROP PROCEDURE IF EXISTS {prefix}publish;

-- {prefix}publish writes one message in the caller's transaction; @{prefix}id is its id then. docs/sql-contract.md describes it.
CREATE PROCEDURE {prefix}publish(
  topic   TEXT CHARACTER SET utf8mb4,
  msg_key TEXT CHARACTER SET utf8mb4,
  type    TEXT CHARACTER SET utf8mb4,
  payload LONGBLOB,
  options LONGTEXT CHARACTER SET utf8mb4
)
LANGUAGE SQL NOT DETERMINISTIC MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE faults, opt_name, opt_value TEXT CHARACTER SET utf8mb4 DEFAULT '';
  DECLARE m_id, m_source, m_subject, m_tenant, m_content_type, m_correlation, m_causation TEXT CHARACTER SET utf8mb4 DEFAULT '';
  DECLARE m_headers, entry_names, entry_values LONGTEXT CHARACTER SET utf8mb4 DEFAULT '{}';
  DECLARE m_schema_version, m_aggregate_version, m_available, bytes BIGINT DEFAULT 0;
  DECLARE hash BIGINT;
  DECLARE m_time BIGINT DEFAULT {now};
  DECLARE i, tries INT DEFAULT 0;
  DECLARE taken BOOLEAN DEFAULT FALSE;
  DECLARE random_part CHAR(32) CHARACTER SET ascii DEFAULT LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 32);
  DECLARE time_part CHAR(12) CHARACTER SET ascii DEFAULT LPAD(LOWER(HEX({now} DIV 1000)), 12, '0');
  DECLARE fault CONDITION FOR SQLSTATE '22023';
  -- A sequence that was closed before its row was written: the INSERT is repeated, and takes another.
  DECLARE CONTINUE HANDLER FOR 1062 SET taken = TRUE;
  -- There is no function MD5.
  DECLARE CONTINUE HANDLER FOR 1305 SET hash = NULL;
  -- UUIDv7: 48 bits of milliseconds, then random bits under the version and the variant.
  SET m_id = CONCAT(LEFT(time_part, 8), '-', RIGHT(time_part, 4), '-7', SUBSTR(random_part, 1, 3), '-',
    LOWER(HEX(8 + CONV(SUBSTR(random_part, 4, 1), 16, 10) % 4)), SUBSTR(random_part, 5, 3), '-', SUBSTR(random_part, 8, 12));
  SET m_source = 'sql', m_content_type = 'application/json';
  SET msg_key = COALESCE(msg_key, ''), type = COALESCE(type, '');
  SET topic = IF(COALESCE(LENGTH(topic), 0) = 0, type, topic);
  SET options = IF(COALESCE(LENGTH(options), 0) = 0, '{}', options);
  IF NOT JSON_VALID(options) OR JSON_TYPE(options) <> 'OBJECT' THEN
    SIGNAL fault SET MESSAGE_TEXT = 'message: options is not a JSON object';
  END IF;
  SET entry_names = JSON_KEYS(options), i = 0;
  each_option: WHILE i < JSON_LENGTH(entry_names) DO
    SET opt_name = JSON_UNQUOTE(JSON_EXTRACT(entry_names, CONCAT('$[', i, ']'))), i = i + 1;
    SET opt_value = NULL;
    IF opt_name NOT REGEXP '^[a-z_]+$' THEN
      SET opt_name = '';
    ELSEIF JSON_TYPE(JSON_EXTRACT(options, CONCAT('$.', opt_name))) = 'NULL' THEN
      SET options = JSON_REMOVE(options, CONCAT('$.', opt_name)); -- as if it was not given
      ITERATE each_option;
    ELSE
      SET opt_value = JSON_UNQUOTE(JSON_EXTRACT(options, CONCAT('$.', opt_name)));
    END IF;
    CASE opt_name
      WHEN 'headers' THEN SET m_headers = JSON_EXTRACT(options, '$.headers');
      WHEN 'id' THEN SET m_id = opt_value;
      WHEN 'source' THEN SET m_source = opt_value;
      WHEN 'subject' THEN SET m_subject = opt_value;
      WHEN 'tenant' THEN SET m_tenant = opt_value;
      WHEN 'content_type' THEN SET m_content_type = opt_value;
      WHEN 'correlation_id' THEN SET m_correlation = opt_value;
      WHEN 'causation_id' THEN SET m_causation = opt_value;
      WHEN 'schema_version' THEN SET m_schema_version = IF(opt_value REGEXP '^[0-9]{1,9}$', opt_value, -1);
      WHEN 'aggregate_version' THEN SET m_aggregate_version = IF(opt_value REGEXP '^[0-9]{1,18}$', opt_value, -1);
      WHEN 'message_time' THEN SET m_time = IF(opt_value REGEXP '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?$',
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST(opt_value AS DATETIME(6))), NULL);
      WHEN 'deliver_at' THEN SET m_available = IF(opt_value REGEXP '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?$',
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST(opt_value AS DATETIME(6))), NULL);
      WHEN 'deliver_after' THEN SET m_available = IF(opt_value REGEXP '^[0-9]{1,9}([.][0-9]{1,6})?$' AND opt_value > 0,
        {now} + CAST(opt_value * 1000000 AS SIGNED), NULL);
      ELSE SET faults = CONCAT(faults, ', unknown option ', opt_name);
    END CASE;
  END WHILE;
  IF LENGTH(COALESCE(m_id, '')) NOT BETWEEN 1 AND 64 THEN SET faults = CONCAT(faults, ', id of 1 to 64 bytes'); END IF;
  IF LENGTH(topic) NOT BETWEEN 1 AND 249 THEN SET faults = CONCAT(faults, ', topic of 1 to 249'); END IF;
  IF LENGTH(msg_key) > 256 THEN SET faults = CONCAT(faults, ', key of up to 256'); END IF;
  IF LENGTH(type) NOT BETWEEN 1 AND 128 THEN SET faults = CONCAT(faults, ', type of 1 to 128'); END IF;
  IF LENGTH(COALESCE(m_source, '')) NOT BETWEEN 1 AND 256 THEN SET faults = CONCAT(faults, ', source of 1 to 256'); END IF;
  IF LENGTH(COALESCE(m_subject, '')) > 256 THEN SET faults = CONCAT(faults, ', subject of up to 256'); END IF;
  IF LENGTH(COALESCE(m_tenant, '')) > 64 THEN SET faults = CONCAT(faults, ', tenant of up to 64'); END IF;
  IF LENGTH(COALESCE(m_correlation, '')) > 128 THEN SET faults = CONCAT(faults, ', correlation_id of up to 128'); END IF;
  IF LENGTH(COALESCE(m_causation, '')) > 128 THEN SET faults = CONCAT(faults, ', causation_id of up to 128'); END IF;
  IF LENGTH(COALESCE(m_content_type, '')) NOT BETWEEN 1 AND 128 OR LOCATE('/', COALESCE(m_content_type, '')) = 0 THEN
    SET faults = CONCAT(faults, ', content_type such as application/json');
  END IF;
  IF payload IS NULL OR LENGTH(payload) > 1048576 THEN SET faults = CONCAT(faults, ', payload of up to 1 MiB'); END IF;
  IF m_schema_version < 0 THEN SET faults = CONCAT(faults, ', schema_version from 1'); END IF;
  IF m_aggregate_version < 0 THEN SET faults = CONCAT(faults, ', aggregate_version from 1'); END IF;
  IF m_time IS NULL THEN SET faults = CONCAT(faults, ', message_time as 2026-01-31 15:04:05 (UTC)'); END IF;
  IF JSON_CONTAINS_PATH(options, 'all', '$.deliver_at', '$.deliver_after') THEN
    SET faults = CONCAT(faults, ', deliver_at or deliver_after, not both');
  ELSEIF m_available IS NULL THEN
    SET faults = CONCAT(faults, ', deliver_at as 2026-01-31 15:04:05 (UTC), deliver_after as seconds above 0');
  END IF;
  IF COALESCE(JSON_TYPE(m_headers), '') <> 'OBJECT' OR JSON_LENGTH(m_headers) > 64 THEN
    SET faults = CONCAT(faults, ', headers as an object of up to 64 strings');
  ELSEIF JSON_LENGTH(m_headers) > 0 THEN
    SET entry_names = JSON_KEYS(m_headers), entry_values = JSON_EXTRACT(m_headers, '$.*'), i = 0;
    WHILE i < JSON_LENGTH(entry_names) DO
      SET opt_value = JSON_UNQUOTE(JSON_EXTRACT(entry_names, CONCAT('$[', i, ']')));
      IF LENGTH(opt_value) = 0 OR JSON_TYPE(JSON_EXTRACT(entry_values, CONCAT('$[', i, ']'))) <> 'STRING' THEN
        SET bytes = 1000000;
      END IF;
      SET bytes = bytes + LENGTH(opt_value) + LENGTH(JSON_UNQUOTE(JSON_EXTRACT(entry_values, CONCAT('$[', i, ']')))), i = i + 1;
    END WHILE;
    IF bytes > 16384 THEN
      SET faults = CONCAT(faults, ', headers of strings with names, up to 16 KiB');
    END IF;
  END IF;
  IF LENGTH(faults) > 0 THEN
    SET faults = LEFT(CONCAT('message needs: ', SUBSTR(faults, 3)), 128);
    SIGNAL fault SET MESSAGE_TEXT = faults;
  END IF;
  -- The partition: the first four bytes of the MD5 sum, big-endian, modulo the number of partitions.
  SET hash = CONV(LEFT(MD5(IF(LENGTH(msg_key) = 0, m_id, msg_key)), 8), 16, 10);
  IF hash IS NULL THEN
    SIGNAL SQLSTATE 'HY000' SET MESSAGE_TEXT = 'this server has no MD5(): INSTALL COMPONENT ''file://component_classic_hashing''';
  END IF;
  REPEAT
    SET tries = tries + 1, taken = FALSE;
    INSERT INTO {prefix}log (partition_id, id, topic, message_key, type, source, subject, tenant, message_time, schema_version,
      aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at, created_at)
    VALUES (hash % (SELECT value FROM {prefix}meta WHERE name = 'partitions'), m_id, topic, msg_key, type, m_source,
      COALESCE(m_subject, ''), COALESCE(m_tenant, ''), m_time, m_schema_version, m_aggregate_version, m_content_type, m_headers,
      COALESCE(m_correlation, ''), COALESCE(m_causation, ''), payload, m_available, {now});
  UNTIL NOT taken OR tries = 4 END REPEAT;
  IF taken THEN
    SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'no free sequence was found; run the transaction again';
  END IF;
  SET @{prefix}id = m_id;
END;
