package arena

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPiecesNeverOverlap(t *testing.T) {
	var a Arena
	var pieces [][]byte
	for i := range 5000 {
		pieces = append(pieces, a.Copy(bytes.Repeat([]byte{byte(i)}, i%67)))
		if i%500 == 0 {
			pieces = append(pieces, a.Copy(bytes.Repeat([]byte{7}, 20_000)))
		}
	}
	n := 0
	for i := range 5000 {
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, i%67), pieces[n])
		n++
		if i%500 == 0 {
			require.Equal(t, bytes.Repeat([]byte{7}, 20_000), pieces[n])
			n++
		}
	}
}

func TestAppendingToAPieceLeavesTheNextAlone(t *testing.T) {
	var a Arena
	first, second := a.Copy([]byte("one")), a.Copy([]byte("two"))
	_ = append(first, 'X')
	require.Equal(t, "two", string(second))
}

func TestEmptyIsNotNil(t *testing.T) {
	var a Arena
	require.NotNil(t, a.Copy(nil))
	require.Empty(t, a.String(nil))
	require.Equal(t, "id", a.String([]byte("id")))
	require.Equal(t, "id", View([]byte("id")))
}

func TestSmallPiecesShareAllocations(t *testing.T) {
	var a Arena
	v := []byte(fmt.Sprintf("%040d", 1))
	require.Less(t, testing.AllocsPerRun(2000, func() { a.Copy(v) }), 1.0)
}
