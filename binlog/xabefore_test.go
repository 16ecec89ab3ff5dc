package binlog

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestCommitsOfWhatWasPreparedBefore(t *testing.T) {
	a, b := xid{1, "a", ""}, xid{1, "b", ""}
	end := func(w *logWriter) *logPoint { return &logPoint{File: "binlog.000001", Pos: uint64(w.pos)} }
	for _, c := range []struct {
		name   string
		before []string
		write  func(w *logWriter) (until *logPoint)
		want   []string
		code   string
	}{
		{"one that XA RECOVER listed", []string{a.String()}, func(w *logWriter) *logPoint {
			until := end(w)
			w.plain(1, "p")
			w.decide(2, "COMMIT", a)
			return until
		}, []string{"p"}, codeXA},
		{"one that may have been decided before XA RECOVER was asked", nil, func(w *logWriter) *logPoint {
			w.plain(1, "p")
			w.decide(2, "COMMIT", a)
			return end(w)
		}, []string{"p"}, codeXA},
		{"rolled back", []string{a.String()}, func(w *logWriter) *logPoint {
			w.decide(1, "ROLLBACK", a)
			w.decide(2, "ROLLBACK", b)
			w.prepare(3, a)
			w.decide(4, "COMMIT", a)
			return end(w)
		}, nil, codeLost},
		{"prepared behind the position, but listed", []string{a.String()}, func(w *logWriter) *logPoint {
			w.prepare(1, a, "a1")
			until := end(w)
			w.decide(2, "COMMIT", a)
			return until
		}, []string{"a1"}, codeLost},
		{"of foreign tables, prepared and decided since", nil, func(w *logWriter) *logPoint {
			w.prepare(1, a)
			w.decide(2, "COMMIT", a)
			w.prepare(3, b)
			until := end(w)
			w.decide(4, "COMMIT", b)
			return until
		}, nil, codeLost},
		{"unknown, but not listed", []string{b.String()}, func(w *logWriter) *logPoint {
			until := end(w)
			w.decide(1, "COMMIT", a)
			return until
		}, nil, codeLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			until := c.write(w)
			log := w.String()
			for _, accepted := range []bool{false, true} {
				kept := &shelf{}
				s, st := feed(t, strings.NewReader(log), io.EOF, withShelf(kept))
				s.mark = &xaMark{Before: slices.Clone(c.before), Until: until}
				if accepted {
					st.accepted = []string{codeXA}
				}
				d := drainAll(s)
				f := event.AsFault(d.err)
				require.Equal(t, c.want, d.payloads)
				if accepted {
					require.Equal(t, codeLost, f.Code, "%v", f)
					continue
				}
				require.Equal(t, c.code, f.Code, "%v", f)
				if f.Code == codeXA {
					require.Equal(t, event.Safety, f.Class)
					require.Contains(t, f.Text, "X'61',X'',1")
					require.Contains(t, f.Hint, "checkpoint accept")
				}
			}
		})
	}
	t.Run("what was listed is forgotten with what is stored", func(t *testing.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		w.decide(1, "ROLLBACK", a)
		s, _ := feed(t, w, io.EOF, withShelf(&shelf{}))
		s.mark = &xaMark{Before: []string{a.String(), b.String()}, Tables: []string{"shop.outbox"}}
		bt, err := s.Read(t.Context())
		require.NoError(t, err)
		_, depends := s.Position(bt.Bounds[0].At)
		require.Equal(t, []string{b.String()}, parseDepends(depends).XA.Before)
	})
}
