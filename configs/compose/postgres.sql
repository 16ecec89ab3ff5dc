-- First start of the compose file's Postgres: the shop's tables, the connector's user with the least that it needs, and the
-- publication before the slot, so that the slot knows it. The slot exists before the first order: nothing is missed, whenever
-- outtail starts. The passwords are for this demonstration alone.
CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text NOT NULL, amount numeric(10, 2) NOT NULL);
CREATE TABLE outbox (
  id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  aggregate_type text NOT NULL,
  aggregate_id   text NOT NULL,
  event_type     text NOT NULL,
  payload        jsonb,
  headers        jsonb,
  occurred_at    timestamptz NOT NULL DEFAULT now()
);

CREATE ROLE shop LOGIN PASSWORD 'shop';
GRANT INSERT, SELECT ON payments TO shop;
GRANT INSERT ON outbox TO shop;

CREATE ROLE outtail LOGIN REPLICATION PASSWORD 'outtail';
GRANT SELECT ON outbox TO outtail;
CREATE PUBLICATION outtail_payments FOR TABLE outbox WITH (publish = 'insert');
SELECT pg_create_logical_replication_slot('outtail_payments', 'pgoutput');
