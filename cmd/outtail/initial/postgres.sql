-- As the owner of the service's schema, in the service's database:
CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, headers jsonb,
occurred_at timestamptz NOT NULL DEFAULT now());

-- As a superuser. postgresql.conf needs wal_level = logical (a restart), and room in max_replication_slots and max_wal_senders:
CREATE ROLE outtail WITH LOGIN REPLICATION;
GRANT SELECT ON public.outbox TO outtail;

-- As the owner of the table:
CREATE PUBLICATION outtail_orders FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = true);

-- Left to do:
-- 1. The role has no password, so nobody can log in as it. Give it one, and outtail the same as PGPASSWORD:
--    ALTER ROLE outtail PASSWORD '…';   (in psql: \password outtail, which keeps it out of logs)
-- 2. Events are sent from the slot's creation on. outtail creates it at its first start (create: true). To have them sent from now on:
--    SELECT pg_create_logical_replication_slot('outtail_orders', 'pgoutput');
