package kafka

import (
	"bytes"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lz4Frames compresses as the client would, but in blocks of 256 KiB: the library's own of 4 MiB take 8 MiB a writer, for nothing, since
// LZ4 looks 64 KiB back (the frame format's "Block Maximum Size"; Java's producer uses 64 KiB).
type lz4Frames struct{ writers sync.Pool }

func newLZ4() *lz4Frames {
	return &lz4Frames{writers: sync.Pool{New: func() any {
		w := lz4.NewWriter(nil)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block256Kb)); err != nil {
			panic(err) // never: the options are constants
		}
		return w
	}}}
}

// Compress implements kgo.Compressor.
func (f *lz4Frames) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	w := f.writers.Get().(*lz4.Writer)
	defer f.writers.Put(w)
	w.Reset(dst)
	if _, err := w.Write(src); err != nil {
		return nil, kgo.CodecError
	}
	if err := w.Close(); err != nil {
		return nil, kgo.CodecError
	}
	return dst.Bytes(), kgo.CodecLz4
}
