package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func parkedKeys(t *testing.T, p *Prepared, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, p.Each(prefix, func(k string, v []byte) error { out[k] = string(v); return nil }))
	return out
}

func TestTheSecondFileIsMadeByTheFirstWriteOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	p := s.Prepared("orders")
	id, err := p.ID()
	require.NoError(t, err)
	require.Empty(t, id)
	require.NoError(t, p.Write(nil, []string{"h"}))
	require.Empty(t, parkedKeys(t, p, ""))
	v, err := p.Get("h1")
	require.NoError(t, err)
	require.Nil(t, v)
	require.NoFileExists(t, filepath.Join(dir, ParkedName))

	id, err = p.Create()
	require.NoError(t, err)
	require.Len(t, id, 16)
	again, err := p.Create()
	require.NoError(t, err)
	require.Equal(t, id, again)
	info, err := os.Stat(filepath.Join(dir, ParkedName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir})
	again, err = s.Prepared("stock").ID()
	require.NoError(t, err)
	require.Equal(t, id, again, "one file for all pipelines, and it stays the same")
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, ParkedName)))
	s = open(t, Options{Dir: dir})
	another, err := s.Prepared("orders").Create()
	require.NoError(t, err)
	require.NotEqual(t, id, another, "one that was lost is noticed")
}

func TestWhatIsKeptOfPreparedTransactions(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	orders, stock := s.Prepared("orders"), s.Prepared("stock")
	require.NoError(t, orders.Write(map[string][]byte{"h1": []byte("head"), "r1a": []byte("x"), "r1b": {}, "r2a": []byte("y")}, nil))
	require.NoError(t, stock.Write(map[string][]byte{"h1": []byte("other")}, nil))
	require.Equal(t, map[string]string{"r1a": "x", "r1b": "", "r2a": "y"}, parkedKeys(t, orders, "r"))
	require.NoError(t, orders.Write(map[string][]byte{"h1": []byte("new"), "r1c": []byte("z")}, []string{"r1"}))
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir})
	orders, stock = s.Prepared("orders"), s.Prepared("stock")
	require.Equal(t, map[string]string{"h1": "new", "r2a": "y"}, parkedKeys(t, orders, ""))
	require.Equal(t, map[string]string{"h1": "other"}, parkedKeys(t, stock, ""))
	v, err := orders.Get("r2a")
	require.NoError(t, err)
	require.Equal(t, "y", string(v))
	v, err = orders.Get("r1a")
	require.NoError(t, err)
	require.Nil(t, v)
	failed := fmt.Errorf("enough")
	require.ErrorIs(t, orders.Each("", func(string, []byte) error { return failed }), failed)
}

func TestADamagedSecondFileIsNeitherUsedNorReplaced(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"a flipped bit": func(b []byte) []byte {
			for i := len(b) - 1; i >= 0; i-- {
				if b[i] == 'Q' {
					b[i] ^= 1
					return b
				}
			}
			t.Fatal("the value is not in the file")
			return nil
		},
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"empty":     func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Options{Dir: dir})
			require.NoError(t, s.Prepared("orders").Write(map[string][]byte{"r1": []byte("QQQQQQQQ")}, nil))
			require.NoError(t, s.Close())
			path := filepath.Join(dir, ParkedName)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			b = damage(b)
			require.NoError(t, os.WriteFile(path, b, 0o600))
			s = open(t, Options{Dir: dir})
			_, err = s.Prepared("orders").ID()
			requireFault(t, err, CodeParkedDamaged, event.Safety)
			requireFault(t, s.Prepared("orders").Write(map[string][]byte{"r1": nil}, nil), CodeParkedDamaged, event.Safety)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, len(b), len(after))
		})
	}
}
