package harness

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// JavaProduce writes records with Kafka's own producer, in the broker's container: the judge of where a key belongs. A key or
// value has no tab and no line break in it, and is at most a few megabytes long.
func (k *Kafka) JavaProduce(t testing.TB, topic string, records map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var lines strings.Builder
	for key, value := range records {
		lines.WriteString(key + "\t" + value + "\n")
	}
	file := "/tmp/" + Unique()
	require.NoError(t, k.c.CopyToContainer(ctx, []byte(lines.String()), file, 0o644))
	code, out, err := k.c.Exec(ctx, []string{"sh", "-c", "/opt/kafka/bin/kafka-console-producer.sh --bootstrap-server " + k.Brokers()[0] + " --topic " + topic +
		" --property parse.key=true --producer-property max.request.size=8000000 <" + file})
	require.NoError(t, err)
	said, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Zero(t, code, string(said))
}
