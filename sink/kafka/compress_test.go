package kafka

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLZ4FramesAreReadByTheLibraries(t *testing.T) {
	compress := newLZ4()
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 450, 64 << 10, 256 << 10, 256<<10 + 1, 1_000_000, 5 << 20} {
		for _, kind := range []string{"text", "noise"} {
			src := bytes.Repeat([]byte(`{"id":1,"name":"x"}`), n/19+1)[:n]
			if kind == "noise" {
				for i := range src {
					src[i] = byte(random.Uint32())
				}
			}
			var dst bytes.Buffer
			out, codec := compress.Compress(&dst, src)
			require.Equal(t, kgo.CodecLz4, codec)

			got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(out)))
			require.NoError(t, err)
			require.True(t, bytes.Equal(src, got), "%d bytes of %s", n, kind)
			got, err = kgo.DefaultDecompressor().Decompress(out, codec)
			require.NoError(t, err)
			require.True(t, bytes.Equal(src, got), "%d bytes of %s", n, kind)
		}
	}
}
