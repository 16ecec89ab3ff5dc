package binlog

import (
	"bytes"
	"compress/zlib"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMariaDBTypesPrintAsTheServerDoes(t *testing.T) {
	for _, c := range []struct {
		kind      opaque
		log, text string
	}{
		{opaqueUUID, "", "00000000-0000-0000-0000-000000000000"},
		{opaqueUUID, "0242ac110002a23f4a11e29b550e8400", "550e8400-e29b-4a11-a23f-0242ac110002"},
		{opaqueUUID, "01890a5dac967b2e8f4a0242ac110002", "01890a5d-ac96-7b2e-8f4a-0242ac110002"},
		{opaqueUUID, "0242ac1100028f4a7b2eac9601890a5d", "01890a5d-ac96-7b2e-8f4a-0242ac110002"}, // of an old table
		{opaqueINET4, "", "0.0.0.0"},
		{opaqueINET4, "0a0001", "10.0.1.0"},
		{opaqueINET6, "", "::"},
		{opaqueINET6, "00000000000000000000000000000001", "::1"},
		{opaqueINET6, "00000000000000000000ffff0a000001", "::ffff:10.0.0.1"},
		{opaqueINET6, "0000000000000000000000000a000001", "::10.0.0.1"},
		{opaqueINET6, "20010db8", "2001:db8::"},
		{opaqueINET6, "20010db8000000010001000100010001", "2001:db8::1:1:1:1:1"},
	} {
		v, err := hex.DecodeString(c.log)
		require.NoError(t, err)
		got, err := appendOpaque(nil, v, c.kind)
		require.NoError(t, err)
		require.Equal(t, c.text, string(got), c.log)
	}
	_, err := appendOpaque(nil, make([]byte, 5), opaqueINET4)
	require.Error(t, err)
}

func TestCompressedColumnsAreUnpacked(t *testing.T) {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, err := w.Write(bytes.Repeat([]byte("x"), 300))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	framed := append([]byte{0x82, 1, 44}, b.Bytes()...)
	bare := append([]byte{0x8a, 1, 44}, b.Bytes()[2:b.Len()-4]...)
	for _, packed := range [][]byte{framed, bare} {
		got, err := unpack(packed, 300)
		require.NoError(t, err)
		require.Equal(t, string(bytes.Repeat([]byte("x"), 300)), string(got))
		_, err = unpack(packed, 299)
		require.ErrorIs(t, err, errUnfolds)
		packed[2]++
		_, err = unpack(packed, 400)
		require.ErrorIs(t, err, errPacked)
		packed[2] -= 2
		_, err = unpack(packed, 400)
		require.ErrorIs(t, err, errPacked)
		packed[2]++
		_, err = unpack(packed[:len(packed)-1], 400)
		require.ErrorIs(t, err, errPacked)
	}
	for packed, want := range map[string]string{"": "", "\x00": "", "\x00abc": "abc"} {
		got, err := unpack([]byte(packed), 10)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, packed := range []string{"\x10a", "\x84a", "\x87aaaaaaaaaa"} {
		_, err := unpack([]byte(packed), 10)
		require.ErrorIs(t, err, errPacked)
	}
}
