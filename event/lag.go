package event

import "time"

// Lag is how far a source's reader is behind the server.
type Lag struct {
	Bytes         int64         // log bytes between what was read and the server's end, -1 unknown
	RetainedBytes int64         // log bytes that the server keeps for us, -1 unknown
	RetentionLeft time.Duration // time until what we need is purged, -1 unknown
}
