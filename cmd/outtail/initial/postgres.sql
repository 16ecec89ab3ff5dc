-- As the owner of the service's schema, in the service's database:
CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, headers jsonb,
occurred_at timestamptz NOT NULL DEFAULT now());

-- As a superuser. postgresql.conf needs wal_level = logical (a restart), and room in max_replication_slots and max_wal_senders:
CREATE ROLE outtail WITH LOGIN REPLICATION PASSWORD 'choose one';
GRANT SELECT ON public.outbox TO outtail;

-- As the owner of the table. Either let outtail create the slot (create: true) and do only this:
CREATE PUBLICATION outtail_orders FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = true);
-- or also create the slot yourself, before the first event that matters, and set create: false:
-- SELECT pg_create_logical_replication_slot('outtail_orders', 'pgoutput');
