package binlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// gtid is one member of the naive model: a set of GTIDs is a map of them.
type gtid struct {
	sid sid
	n   int64
}

type model map[gtid]bool

var someSIDs = rapid.Custom(func(t *rapid.T) sid {
	return sid{uuid: [16]byte{15: rapid.Byte().Filter(func(b byte) bool { return b < 3 }).Draw(t, "uuid")}, tag: rapid.SampledFrom([]string{"", "", "a_1", "billing"}).Draw(t, "tag")}
})

func drawSet(t *rapid.T, name string) (*gtidSet, model) {
	g, m := newGTIDSet(), model{}
	for i := range rapid.IntRange(0, 12).Draw(t, name) {
		s := someSIDs.Draw(t, fmt.Sprint(name, i))
		first := rapid.Int64Range(1, 30).Draw(t, "first")
		last := first + rapid.Int64Range(-1, 6).Draw(t, "length")
		g.add(s, first, last)
		for n := first; n <= last; n++ {
			m[gtid{s, n}] = true
		}
	}
	return g, m
}

func (m model) equals(t *rapid.T, g *gtidSet) {
	n := 0
	for s, spans := range g.spans {
		for i, x := range spans {
			if x.first > x.last || i > 0 && spans[i-1].last+1 >= x.first {
				t.Fatalf("spans of %s are not disjoint, ascending and joined: %v", s, spans)
			}
			for k := x.first; k <= x.last; k++ {
				if !m[gtid{s, k}] {
					t.Fatalf("%s:%d is in %s and not in the model", s, k, g)
				}
				n++
			}
		}
	}
	if n != len(m) {
		t.Fatalf("%s has %d members, the model %d", g, n, len(m))
	}
}

func TestB041GTIDSetIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, ma := drawSet(t, "a")
		b, mb := drawSet(t, "b")
		ma.equals(t, a)

		minus, subset := model{}, true
		for x := range ma {
			if !mb[x] {
				minus[x] = true
			}
			if !a.has(x.sid, x.n) {
				t.Fatalf("%s lacks %v", a, x)
			}
		}
		for x := range mb {
			if !ma[x] {
				subset = false
				if a.has(x.sid, x.n) {
					t.Fatalf("%s has %v", a, x)
				}
			}
		}
		minus.equals(t, a.minus(b))
		if a.contains(b) != subset {
			t.Fatalf("%s contains %s: %v", a, b, !subset)
		}
		union := a.clone()
		union.union(b)
		for x := range mb {
			minus[x] = true
		}
		for x := range ma {
			minus[x] = true
		}
		minus.equals(t, union)
		ma.equals(t, a) // neither operation changed it

		back, err := parseGTIDSet(a.String())
		if err != nil {
			t.Fatal(err)
		}
		ma.equals(t, back)
		if a.empty() {
			return
		}
		decoded, err := decodeGTIDSet(a.encode())
		if err != nil {
			t.Fatal(err)
		}
		ma.equals(t, decoded)
		// The library's independent code reads our text and writes the same bytes.
		other, err := mysql.ParseMysqlGTIDSet(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if string(other.Encode()) != string(a.encode()) {
			t.Fatalf("%s is encoded as %x, the library says %x", a, a.encode(), other.Encode())
		}
	})
}

func TestGTIDSetText(t *testing.T) {
	const u = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	for in, want := range map[string]string{
		"":           "",
		u + ":1":     u + ":1",
		u + ":1-3:5": u + ":1-3:5",
		" 3E11FA47-71CA-11E1-9E33-C80AA9429562:5:1-3:4 ,\n": u + ":1-5", //nolint:gocritic // the white space is what is read
		u + ":1-2," + u + ":tag:7:a:1":                      u + ":1-2:a:1:tag:7",
	} {
		g, err := parseGTIDSet(in)
		require.NoError(t, err, in)
		require.Equal(t, want, g.String())
	}
	for _, bad := range []string{"x", u, u + ":", u + ":0", u + ":a", u + ":1-x", u + ":tag", "now", "0-1-5"} {
		_, err := parseGTIDSet(bad)
		require.Error(t, err, bad)
	}
}

func TestMariaDBPosition(t *testing.T) {
	m, err := parseMariaPos("7-1-5, 0-1-42")
	require.NoError(t, err)
	require.Equal(t, "0-1-42,7-1-5", m.String())
	state, err := parseMariaState("0-1-42,0-2-50,7-1-4")
	require.NoError(t, err)
	require.Equal(t, "7-1-5", m.lacking(state).String())
	require.Equal(t, "7-1-4", func() string { g, _ := state.fork(m[7]); return g.String() }())
	begin, err := parseMariaPos("0-2-50,3-1-1,7-1-5")
	require.NoError(t, err)
	require.Equal(t, "what follows 0-1-42 up to 0-2-50, all of domain 3 up to 3-1-1", m.between(m.missing(begin)))
	for _, bad := range []string{"0-1", "a-1-2", "0-1-2,0-1-3", "0-1--2"} {
		_, err := parseMariaPos(bad)
		require.Error(t, err, bad)
	}
}

func TestOwnedTransactions(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "12345678-71ca-11e1-9e33-c80aa9429562"
	for text, want := range map[string]string{
		"":                                   "",
		a + ":7#12":                          a + ":7",
		a + ":7#12:9#3:8#44":                 a + ":7-9",
		a + ":7#12,\n" + b + ":1#3":          b + ":1," + a + ":7",
		a + ":7#12" + b + ":1#3":             b + ":1," + a + ":7",
		strings.ToUpper(a) + ":blue:7#12":    a + ":blue:7",
		a + ":7#12:what:ever#1:-3#1:5":       a + ":7",
		"nonsense:1#1," + a[1:] + ":1#1:2#2": "",
	} {
		require.Equal(t, want, parseOwned(text).String(), text)
	}
}

func FuzzGTIDSet(f *testing.F) {
	g, _ := parseGTIDSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5:tag:1-9")
	f.Add(g.encode())
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := decodeGTIDSet(b)
		if err != nil {
			return
		}
		if back, err := parseGTIDSet(g.String()); err == nil && (!back.contains(g) || !g.contains(back)) {
			t.Fatalf("%s is read back as %s", g, back)
		}
	})
}
