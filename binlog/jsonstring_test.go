package binlog

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A string of any bytes is escaped byte by byte, wherever in the eight that are looked at together a byte lies.
func TestJSONStringsAreEscapedByteByByte(t *testing.T) {
	slow := func(s []byte) (out []byte) {
		out = append(out, '"')
		for _, c := range s {
			switch {
			case c == '"' || c == '\\':
				out = append(out, '\\', c)
			case c < 0x20:
				quoted, err := json.Marshal(string(c))
				require.NoError(t, err)
				out = append(out, quoted[1:len(quoted)-1]...)
			default:
				out = append(out, c)
			}
		}
		return append(out, '"')
	}
	bytes := rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 0x1f, 0x20, 0x21, '"', '#', '\\', ']', '\n', 0x7f, 0x80, 0x9f, 0xa2, 0xdc, 0xff, 'x'})))
	rapid.Check(t, func(t *rapid.T) {
		s := bytes.Draw(t, "s")
		require.Equal(t, string(slow(s)), string(appendJSONString(nil, s)))
	})
}
