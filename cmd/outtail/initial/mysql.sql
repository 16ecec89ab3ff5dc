-- In the service's database, here shop:
CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregate_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL, event_type VARCHAR(255) NOT NULL, payload JSON,
headers JSON, occurred_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6));

-- As an administrator. The server needs log_bin, binlog_format = ROW and binlog_row_image = FULL (all defaults since 8.0);
-- binlog_row_metadata = FULL is recommended: the log then proves the layout of every row by itself.
CREATE USER 'outtail'@'%' IDENTIFIED BY RANDOM PASSWORD; -- the server makes one up and prints it, once
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'outtail'@'%';
GRANT SELECT ON shop.outbox TO 'outtail'@'%';
-- Only where XA transactions write the outbox (MySQL):
-- GRANT XA_RECOVER_ADMIN ON *.* TO 'outtail'@'%';
SET PERSIST binlog_row_metadata = FULL;

-- Left to do: give outtail the password that the server has just printed, as MYSQL_PASSWORD; or another one:
--    ALTER USER 'outtail'@'%' IDENTIFIED BY '…';
