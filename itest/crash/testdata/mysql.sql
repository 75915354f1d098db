-- The load's tables, and its transactions as a procedure: each increments the counter of an account, writes the new value
-- with a transaction ID to a history table, and publishes the same. Statements are separated by empty lines.
CREATE TABLE accounts (id INT PRIMARY KEY, counter BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB;

CREATE TABLE history (n BIGINT AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL, counter BIGINT NOT NULL,
  transaction BIGINT NOT NULL, took BIGINT NOT NULL) ENGINE=InnoDB;

CREATE PROCEDURE fill()
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE i <= 1000 DO
    INSERT INTO accounts (id) VALUES (i);
    SET i = i + 1;
  END WHILE;
END;

CALL fill();

-- Of a hundred transactions ten are rolled back, one publishes and rolls back to a savepoint, and one stays open for a while
-- after publishing, so that it commits late. took is how long publishing took, in microseconds.
CREATE PROCEDURE step(chosen INT, fate INT)
BEGIN
  DECLARE c, t BIGINT;
  DECLARE began DATETIME(6);
  SET t = UUID_SHORT();
  UPDATE accounts SET counter = counter + 1 WHERE id = chosen;
  SELECT counter INTO c FROM accounts WHERE id = chosen;
  IF fate = 12 THEN
    SAVEPOINT undone;
    CALL postrider_publish('accounts', CONCAT('account/', chosen), 'account.changed', '{"account":-1,"counter":0,"transaction":0}', NULL);
    ROLLBACK TO SAVEPOINT undone;
  END IF;
  SET began = SYSDATE(6);
  CALL postrider_publish('accounts', CONCAT('account/', chosen), 'account.changed',
    CONCAT('{"account":', chosen, ',"counter":', c, ',"transaction":', t, '}'), NULL);
  INSERT INTO history (account, counter, transaction, took) VALUES (chosen, c, t, TIMESTAMPDIFF(MICROSECOND, began, SYSDATE(6)));
  IF fate = 11 THEN
    DO SLEEP(0.1);
  END IF;
END;

CREATE PROCEDURE work(seconds INT)
BEGIN
  DECLARE fate INT;
  DECLARE ends DATETIME DEFAULT SYSDATE() + INTERVAL seconds SECOND;
  WHILE SYSDATE() < ends DO
    SET fate = 1 + FLOOR(RAND() * 100);
    START TRANSACTION;
    CALL step(1 + FLOOR(1000 * RAND() * RAND()), fate);
    IF fate <= 10 THEN
      ROLLBACK;
    ELSE
      COMMIT;
    END IF;
    DO SLEEP(0.1 * RAND());
  END WHILE;
END;
