package wal

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outtail/outtail/event"
)

// said reads one status update and gives its position and whether it asks for an answer.
func said(t *testing.T, c net.Conn) (at event.LSN, reply bool, when time.Time) {
	t.Helper()
	b := make([]byte, 39)
	_, err := readFull(c, b)
	require.NoError(t, err)
	require.Equal(t, []byte{'d', 0, 0, 0, 38, 'r'}, b[:6])
	write := binary.BigEndian.Uint64(b[6:])
	require.Equal(t, write, binary.BigEndian.Uint64(b[14:]), "flush")
	require.Equal(t, write, binary.BigEndian.Uint64(b[22:]), "apply")
	return event.LSN(write), b[38] == 1, time.Now()
}

func readFull(c net.Conn, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		k, err := c.Read(b[n:])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func TestTheServerIsToldThatWeLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := net.Pipe()
		a := newAnswerer(ours, 10*time.Second, time.Hour, 100, newWindow(&Options{}), func(error) {})
		go a.run()
		start := time.Now()
		at, reply, when := said(t, server)
		require.EqualValues(t, 100, at)
		require.True(t, reply, "an answer shows that the server lives")
		require.Equal(t, 10*time.Second, when.Sub(start))

		synctest.Wait()
		time.Sleep(time.Second)
		start = time.Now()
		a.ask()
		_, _, when = said(t, server)
		require.Equal(t, start, when, "a question is answered at once")

		synctest.Wait()
		time.Sleep(time.Second)
		start = time.Now()
		a.confirm(200)
		a.confirm(150)
		at, reply, when = said(t, server)
		require.EqualValues(t, 200, at, "never back")
		require.False(t, reply)
		require.Equal(t, start, when)

		a.confirm(300)
		a.confirm(400)
		at, _, when = said(t, server)
		require.EqualValues(t, 400, at)
		require.Equal(t, start.Add(statusGap), when, "positions are told at most twice a second")

		a.confirm(500)
		go a.stop()
		at, _, _ = said(t, server)
		require.EqualValues(t, 500, at, "the last position is told before the end")
		end := make([]byte, 10)
		_, err := readFull(server, end)
		require.NoError(t, err)
		require.Equal(t, "c\x00\x00\x00\x04X\x00\x00\x00\x04", string(end))
		<-a.ended
	})
}

func TestAServerThatDoesNotReadDoesNotHoldTheEnd(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		ours, _ := net.Pipe()
		a := newAnswerer(ours, time.Second, time.Minute, 100, newWindow(&Options{}), func(error) {})
		go a.run()
		time.Sleep(1500 * time.Millisecond) // it hangs in the write of the first second
		start := time.Now()
		a.stop()
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
}

func TestASessionWhoseProcessStoodStillIsNotOursAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := net.Pipe()
		defer server.Close()
		a := newAnswerer(ours, 10*time.Second, 30*time.Second, 100, newWindow(&Options{}), func(error) {})
		time.Sleep(30*time.Second - 1)
		require.False(t, a.overdue())
		time.Sleep(1)
		require.True(t, a.overdue())
		forever := newAnswerer(ours, 10*time.Second, 0, 100, newWindow(&Options{}), func(error) {})
		time.Sleep(time.Hour)
		require.False(t, forever.overdue(), "a server that waits for ever")

		// Told in time again and again, it stays ours.
		a = newAnswerer(ours, 10*time.Second, 30*time.Second, 100, newWindow(&Options{}), func(error) {})
		go a.run()
		read := make(chan struct{})
		go func() { // ends with the connection
			defer close(read)
			_, _ = io.Copy(io.Discard, server)
		}()
		for range 100 {
			time.Sleep(7 * time.Second)
			require.False(t, a.overdue())
		}
		a.stop()
		<-read
	})
}
