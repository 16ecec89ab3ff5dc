package checkpoint

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func exported(t *testing.T) (Export, []byte) {
	t.Helper()
	cp := my("binlog.000002", 1234, 17)
	cp.Prefix = &event.Prefix{Tx: "binlog.000002:1234", Rows: 3, Selection: "s"}
	cp.Depends = json.RawMessage(`{"tables":{"shop.outbox":[{"name":"id <&>"}]}}`)
	cp.SavedAt, cp.Accepted = time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC), []string{"OT3022"}
	e := NewExport("orders", "v1", time.Now(), cp, Left{File: "0123", Parked: 2})
	b, err := e.Encode()
	require.NoError(t, err)
	return e, b
}

func TestAnExportHoldsWhatAStartNeeds(t *testing.T) {
	want, b := exported(t)
	got, err := ParseExport(b)
	require.NoError(t, err)
	require.JSONEq(t, string(want.Checkpoint.Depends), string(got.Checkpoint.Depends))
	require.Empty(t, got.Checkpoint.Accepted)
	require.NotEmpty(t, got.Sum)
	got.Checkpoint.Depends, want.Checkpoint.Depends, got.Sum = nil, nil, ""
	require.Equal(t, want, got)
	var flat bytes.Buffer
	require.NoError(t, json.Compact(&flat, b))
	_, err = ParseExport(flat.Bytes())
	require.NoError(t, err, "how it is laid out does not matter")
}

// No changed byte passes, but for one that changes only how it is laid out.
func TestAnExportThatWasChangedIsNoExport(t *testing.T) {
	want, b := exported(t)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 4))
	for range 3000 {
		c := bytes.Clone(b)
		c[rng.IntN(len(c))] ^= 1 << rng.IntN(8)
		got, err := ParseExport(c)
		if err == nil {
			require.Equal(t, want.Checkpoint.Position, got.Checkpoint.Position)
			require.Equal(t, want.Checkpoint.Prefix, got.Checkpoint.Prefix)
			require.JSONEq(t, string(want.Checkpoint.Depends), string(got.Checkpoint.Depends))
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "position", "another object": "{}", "a later format": `{"outtail_checkpoint":2}`,
		"cut": string(b[:len(b)/2]), "something behind": string(b) + "{}", "a field more": `{"outtail_checkpoint":1,"more":1}`,
	} {
		_, err := ParseExport([]byte(text))
		require.Error(t, err, name)
	}
}

func TestAPositionIsFoundInAFileThatCannotBeOpened(t *testing.T) {
	dir, sound := soundFile(t)
	path := filepath.Join(dir, FileName)
	page := os.Getpagesize()
	for name, damage := range map[string]func(b []byte) []byte{
		"meta pages gone": func(b []byte) []byte { clear(b[:2*page]); return b },
		"head cut off":    func(b []byte) []byte { return b[page+100:] },
		"sound":           func(b []byte) []byte { return b },
	} {
		require.NoError(t, os.WriteFile(path, damage(bytes.Clone(sound)), 0o600))
		found, err := Salvage(dir, "orders")
		require.NoError(t, err, name)
		require.NotEmpty(t, found, name)
		require.Equal(t, event.LSN(1039), found[0].Position.LSN, "%s: the newest", name)
		stock, err := Salvage(dir, "stock")
		require.NoError(t, err)
		require.Equal(t, event.MySQL, stock[0].Position.Kind, "a record of another pipeline is not taken")
		none, err := Salvage(dir, "order")
		require.NoError(t, err)
		require.Empty(t, none)
	}
	// Whatever is flipped, what is found was written once.
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 5))
	for range 300 {
		b := bytes.Clone(sound)
		for range 1 + rng.IntN(200) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		for _, cp := range salvage(b, "orders") {
			require.Equal(t, "7301", cp.Position.SystemID)
			require.Equal(t, event.LSN(1000+cp.Events), cp.Position.LSN)
		}
	}
	_, err := Salvage(t.TempDir(), "orders")
	requireFault(t, err, CodeUnusable, event.Environment)
}
