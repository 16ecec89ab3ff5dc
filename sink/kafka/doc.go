// Package kafka sends messages to Kafka: acks=all, idempotent, partitioned as Java clients do.
//
// # What the sink adds to the client
//
// franz-go keeps the order of one partition and retries by itself for ever. What it does not do is what this package is for:
//
//   - It fails every record buffered for a partition when one batch is refused, and sends records produced just afterwards
//     normally. Taken literally that loses order, so nothing that failed is reported before the sink knows whose fault it was.
//   - It fails or spins on topics that are missing or refused. Here a topic is looked up before its first record; until it
//     answers, its events wait in the sink and nothing of them is handed to the client.
//   - It never adopts a topic that was deleted and recreated.
//
// # One window, one lock
//
// Every message that was sent and is not yet behind the lowest unacked one has an entry in the window, in the order of Send.
// An entry is held (waits in the sink), flying (handed to the client), acked, or failed. Its message stays valid while a lower
// one is unacked, so whatever went wrong, the sink can send again from the window without having copied anything. All of it is
// under one mutex, calls of Acks included, so that Acked, Reopened and Failed of one message leave in the order in which they
// became true. Acks must therefore not call the sink.
//
// # Order (I3)
//
// An entry is handed to the client only if its topic is ready and no earlier held or failed entry has its aggregate, or its
// topic and key. A failure fences the topic: new events are held; when nothing of the topic is flying any more, everything from
// the lowest failed event on is held again, acked ones of its partition included (Reopened first), and goes out in order once
// the topic answers.
//
// Partitions take turns with themselves: what comes while records of a partition are flying is queued, and handed over as one
// turn when all of them are acked. The client pipelines the batches of a turn, and the broker's sequence numbers see to it that
// none of them is appended after one before it was refused. Between turns nothing sees to it: a record handed over while the
// client is failing what it had is sent as if nothing had happened. The naive design, everything to the client at once, put new
// events before failed ones in one of fifty random runs of TestNothingIsLostOrReordered…; a turn that may be written before it
// is complete (conn.go) in one of two hundred. It costs up to one round trip where events of a partition follow each other
// faster than that, and gives larger batches. While little is unacked, partitions go together (convoy.go).
//
// # Three ways out of a failed promise
//
//   - For the record's own sake (too large, invalid): the topic goes on with one record in flight until the events that failed
//     together have been tried alone. What fails alone is the culprit: Failed, and its topic stays fenced behind it until it
//     is discarded, because it is kept elsewhere; if it never is, nothing behind it leaves.
//   - The topic's (authorisation): held, looked up again slowly, told as a condition.
//   - Everything else (a recreated topic, a dead producer id, a batch cap that changed): when nothing is flying any more, a new
//     client takes over, and all topics are looked up again. Not PurgeTopicsFromProducing: a purged partition starts again
//     at sequence 0 under the same producer epoch, and a broker that still remembers that sequence acknowledges the batch as a
//     duplicate without writing it (I1).
package kafka
