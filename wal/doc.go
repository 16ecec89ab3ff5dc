// Package wal is the Postgres source: it reads a logical replication slot with the pgoutput plugin and yields the inserts
// into the outbox tables, in commit order.
//
// A session is two connections. The replication connection streams; Read reads it in the caller's goroutine, and one
// goroutine, which owns its writes, answers for the session while nobody reads. The catalog connection, owned by another
// goroutine, compares every minute what the position depends on (publication, tables) and asks how much log the slot
// keeps. What is decided about a stored position and what the server says is in decide.go, as functions without a network.
package wal
