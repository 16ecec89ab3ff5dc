package binlog

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// MariaDB's tables may have columns that its catalogue does not show and its log has behind all others: row_start and row_end of a
// table WITH SYSTEM VERSIONING, and DB_ROW_HASH_n for each UNIQUE key over what is too long for an index. A definition has them too.
//
// In a versioned table a DELETE is logged as an UPDATE that ends the row, and an UPDATE adds a second row: a copy of what was, that
// ended. It looks like an INSERT, and is none (I2). What ended is known by row_end; which column that is, no metadata says.

const (
	asRowStart = " generated always as row start"
	asRowEnd   = " generated always as row end"
	hashColumn = "DB_ROW_HASH_"
)

// hiddenSQL asks for what withHidden needs, beside a table's columns.
func hiddenSQL(where string) string {
	of := func(what string) string { return "(SELECT " + what + " FROM information_schema.TABLES" + where + ")" }
	return ", GENERATION_EXPRESSION, " + of("TABLE_TYPE = 'SYSTEM VERSIONED'") + ", IF(" + of("ENGINE = 'MEMORY'") + ", 0, " +
		"(SELECT COUNT(DISTINCT INDEX_NAME) FROM information_schema.STATISTICS" + where + " AND NON_UNIQUE = 0 AND INDEX_TYPE = 'HASH'))"
}

// withHidden completes a definition by the answer, which has a row.
func withHidden(d definition, r *mysql.Result) definition {
	period := false
	for i := range d {
		switch e, _ := r.GetString(i, 3); e {
		case "ROW START":
			d[i].Type += asRowStart
		case "ROW END":
			d[i].Type += asRowEnd
			period = true
		}
	}
	if versioned, _ := r.GetInt(0, 4); versioned == 1 && !period {
		d = append(d, defColumn{Name: "row_start", Type: "timestamp(6)" + asRowStart}, defColumn{Name: "row_end", Type: "timestamp(6)" + asRowEnd})
	}
	hashes, _ := r.GetInt(0, 5)
	return d.hashed(int(hashes))
}

// hashed gives a definition so many columns of hashes.
func (d definition) hashed(n int) definition {
	out := slices.Clone(d[:len(d)-d.hashes()])
	for i := range n {
		out = append(out, defColumn{Name: fmt.Sprintf("%s%d", hashColumn, i+1), Type: "bigint unsigned"})
	}
	return out
}

func (d definition) hashes() (n int) {
	for n < len(d) && strings.HasPrefix(d[len(d)-1-n].Name, hashColumn) {
		n++
	}
	return n
}

// shown is how many columns come before the hidden ones.
func (d definition) shown() int {
	n := len(d) - d.hashes()
	if n > 2 && d[n-1].Name == "row_end" && strings.HasSuffix(d[n-1].Type, asRowEnd) && d[n-2].Name == "row_start" {
		n -= 2
	}
	return n
}

// byTransaction names the columns of a period in numbers of transactions; none where it is in time, or there is none. Changes of such a
// table are logged as statements.
func (d definition) byTransaction() (period []string) {
	for _, c := range d {
		if strings.HasPrefix(c.Type, "bigint") && (strings.HasSuffix(c.Type, asRowStart) || strings.HasSuffix(c.Type, asRowEnd)) {
			period = append(period, c.Name)
		}
	}
	return period
}

// rowMark reads GENERATED ALWAYS AS ROW START or END; "" is something else.
func rowMark(words []string) string {
	switch text := " " + strings.ToLower(strings.Join(words, " ")); {
	case strings.Contains(text, " as row start"):
		return asRowStart
	case strings.Contains(text, " as row end"):
		return asRowEnd
	}
	return ""
}

// maybeVersioned: it has two columns that row_start and row_end could be.
func (t *tableMap) maybeVersioned() bool {
	n := 0
	for i := range t.columns {
		if c := &t.columns[i]; t.maria && c.kind == typeTimestamp2 && c.meta == 6 && !c.nullable {
			n++
		}
	}
	return n >= 2
}

// past reports whether a row_end has come: the one of a row that is current is the end of time, which MariaDB 11.5 put off.
func past(rowEnd []byte) bool {
	if len(rowEnd) != 7 {
		return false
	}
	seconds := binary.BigEndian.Uint32(rowEnd)
	return micros(rowEnd[4:]) != 999999 || seconds != 1<<31-1 && seconds != 1<<32-1
}

// rowEnd finds which column says that a row ended; -1 none.
func (st *stream) rowEnd(p *plan) (int, error) {
	if p.layout == nil {
		if !p.tm.maybeVersioned() {
			return -1, nil
		}
		var err error
		if p.layout, err = st.s.layout(st, p); err != nil {
			return -1, err
		}
	}
	return p.layout.rowEnd, nil
}

func (st *stream) pastRow() { st.filtered("history", 1) }

// followHashes takes in that a UNIQUE key came or went: statements about keys are not followed. It did where the catalogue of now shows
// the columns that are proved, and such a key that it did not show then, or shows none that it did.
func (s *Source) followHashes(t *tableMap, k *known, of *table) {
	n := len(t.columns) - len(k.proved) + k.proved.hashes()
	if !t.maria || n < 0 || n == k.proved.hashes() {
		return
	}
	for i := range n {
		if c := &t.columns[len(t.columns)-1-i]; c.kind != typeLongLong {
			return
		}
	}
	if k.proved.hashes() == 0 {
		seen, err := s.lookAgain(s.reading, of)
		if err != nil || seen.def.hashes() == 0 || !seen.def.reads(k.proved) {
			return // they do not fit, then
		}
	}
	k.proved = k.proved.hashed(n)
}
