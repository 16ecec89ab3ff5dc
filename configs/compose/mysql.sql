-- First start of the compose file's MySQL: the shop's tables, and the connector's user with the least that it needs. The
-- passwords are for this demonstration alone.
CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(64) NOT NULL, total DECIMAL(10, 2) NOT NULL);
CREATE TABLE outbox (
  id             CHAR(36) PRIMARY KEY,
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  event_type     VARCHAR(255) NOT NULL,
  payload        JSON,
  headers        JSON,
  occurred_at    TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
);

CREATE USER shop@'%' IDENTIFIED BY 'shop';
GRANT INSERT, SELECT ON shop.orders TO shop@'%';
GRANT INSERT ON shop.outbox TO shop@'%';

CREATE USER outtail@'%' IDENTIFIED BY 'outtail';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO outtail@'%';
GRANT SELECT ON shop.outbox TO outtail@'%';
