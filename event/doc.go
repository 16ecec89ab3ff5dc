// Package event holds the words that every other package shares: what a source reads (Event, Batch, Tx), where it was
// read (Position, Checkpoint), what a sink is given (Message) and how something that went wrong is told (Fault).
//
// It imports the standard library only, and nothing here touches network, files or clock.
package event
