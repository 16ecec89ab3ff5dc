-- The outbox table of preset outtail, for MySQL and MariaDB. Insert a row in the transaction that changes the business rows.
CREATE TABLE outbox (
  id             CHAR(36) PRIMARY KEY,
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  event_type     VARCHAR(255) NOT NULL,
  payload        JSON,
  headers        JSON,
  occurred_at    TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
);
