// Package checkpoint keeps, per pipeline, the position up to which nothing needs sending any more: one bbolt file
// outtail.db in the data directory, for one process at a time. It implements pipeline.Store.
//
// What it owes to the promises:
//
//   - I1, I4: Save returns only after the commit has reached the disk, and a position in the file is therefore never
//     ahead of what the caller saw as saved. All pipelines of a process share one commit.
//   - I5: a file that is damaged, truncated, empty or of a newer format is a safety stop. It is never replaced by a
//     new one, since a new one means "start again" and whatever lies between would be skipped silently. For the same
//     reason a new file gets its name only when it is complete and on disk: an outtail.db without content is always
//     damage, never a start that was cut short.
//   - I9: a full disk, a file system that became read-only and an I/O error are told apart, since they ask for
//     different things of the operator.
//
// Layout of the file. Pipelines have a level of their own so that no pipeline's name can collide with ours.
//
//	meta                      format -> "1"
//	pipelines / <name>        current -> record; stop -> record of the finding that it stopped at, until a position is stored again
//	pipelines / <name> / history   8-byte big-endian Unix nanoseconds -> record
//	pipelines / <name> / depends   hash -> record, what history records refer to (it is large and rarely changes)
//	audit                     8-byte big-endian sequence -> record
//
// A record is a CRC-32C (Castagnoli, big endian) of its place and text, then JSON text: bbolt checks its two meta pages
// only, and a flipped bit in a position would otherwise be a position.
package checkpoint
