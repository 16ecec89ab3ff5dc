package bench

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
)

// check reads topics and fails where an event is lost, invented, or new behind a later one of its key; it tells how many came again.
func check(t testing.TB, k *harness.Kafka, n int, topics ...string) (again int64) {
	seen := make([]bool, n)
	newest := map[string]int{}
	got, left := 0, int64(0)
	for _, topic := range topics {
		left += k.Count(t, topic)
	}
	k.Consume(t, func(r *kgo.Record) bool {
		i := sequence(r.Value)
		left--
		require.True(t, i >= 0 && i < n, "a record that was never written")
		if seen[i] {
			again++
			return left > 0
		}
		key := r.Topic + "/" + string(r.Key)
		last, known := newest[key]
		require.False(t, known && i < last, "%d of %s came behind %d", i, key, last)
		newest[key] = i
		seen[i] = true
		got++
		return left > 0
	}, topics...)
	require.Equal(t, n, got, "events are lost")
	return again
}

// sequence is the number in a payload, however the database formats it; -1 where there is none.
func sequence(payload []byte) int {
	_, rest, _ := bytes.Cut(payload, []byte(`"seq":`))
	rest = bytes.TrimLeft(rest, " ")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	i, err := strconv.Atoi(string(rest[:end]))
	if err != nil {
		return -1
	}
	return i
}
