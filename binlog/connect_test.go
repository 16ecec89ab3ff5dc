package binlog

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// Whoever takes a connection without TLS over, and asks for the password in clear text, does not get it, in however many pieces he asks.
func TestThePasswordIsNotToldInTheClear(t *testing.T) {
	for _, piece := range []int{1, 7, 1000} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		told := make(chan []byte)
		go func() { // ends with the connection
			c, err := l.Accept()
			if err != nil {
				close(told)
				return
			}
			send := func(n byte, payload []byte) {
				p := append([]byte{byte(len(payload)), 0, 0, n}, payload...)
				for len(p) > 0 {
					k := min(piece, len(p))
					_, _ = c.Write(p[:k])
					p = p[k:]
				}
			}
			hello := append([]byte{10}, "9.7.0\x00"...)
			hello = append(hello, 1, 0, 0, 0)
			hello = append(hello, "saltsalt\x00"...)
			hello = append(hello, 0x00, 0x82, 45, 2, 0, 0x18, 0x00, 21) // protocol 4.1, secure connection, plugins, attributes
			hello = append(hello, make([]byte, 10)...)
			hello = append(hello, "saltsaltsalt\x00mysql_native_password\x00"...)
			send(0, hello)
			head := make([]byte, 4)
			_, _ = io.ReadFull(c, head)
			_, _ = io.CopyN(io.Discard, c, int64(head[0])|int64(head[1])<<8)
			send(2, []byte("\xfemysql_clear_password\x00"))
			rest, _ := io.ReadAll(c)
			told <- rest
			_ = c.Close()
		}()
		s, err := New(Options{Kind: event.MySQL, Pipeline: "orders", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "u", Password: "s3cret-word", TLS: TLS{Mode: "disable"}, Tables: []string{"a.b"}})
		require.NoError(t, err)
		_, err = s.connect(t.Context())
		f := event.AsFault(err)
		require.NotNil(t, f, "%v", err)
		require.Equal(t, codeTLS, f.Code, "%v", f)
		require.NotContains(t, f.Error()+f.Hint, "s3cret-word")
		require.False(t, bytes.Contains(<-told, []byte("s3cret-word")))
		require.NoError(t, l.Close())
	}
}
