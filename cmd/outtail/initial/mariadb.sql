-- In the service's database, here shop:
CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregate_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL, event_type VARCHAR(255) NOT NULL, payload JSON,
headers JSON, occurred_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6));

-- As an administrator. The server needs log_bin, binlog_format = ROW and binlog_row_image = FULL in my.cnf;
-- binlog_row_metadata = FULL is recommended: the log then proves the layout of every row by itself.
CREATE USER 'outtail'@'%' ACCOUNT LOCK;
GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'outtail'@'%';
GRANT SELECT ON shop.outbox TO 'outtail'@'%';
SET GLOBAL binlog_row_metadata = FULL; -- until the next restart; in my.cnf for good

-- Left to do: the user is locked and has no password. Give it one, and outtail the same as MARIADB_PASSWORD:
--    ALTER USER 'outtail'@'%' IDENTIFIED BY '…' ACCOUNT UNLOCK;
