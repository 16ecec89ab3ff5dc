package binlog_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// Tables of random types with random rows: what the source renders is what the server prints for the same row. A run lasts
// until OUTTAIL_VALUES (a duration) has passed, with tables of its own, by default a few rounds; OUTTAIL_VALUES_SEED repeats one round.
func TestRandomTablesReadAsTheServerPrintsThem(t *testing.T) {
	for _, kind := range []string{event.MySQL, event.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			maria := kind == event.MariaDB
			b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: maria}))
			b.kind = kind
			g := &randomTable{b: b, maria: maria}
			for _, cs := range strings.Split(b.Scalar(t, "", "SELECT GROUP_CONCAT(CHARACTER_SET_NAME) FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME <> 'binary'"), ",") {
				if cs != "filename" {
					g.charsets = append(g.charsets, cs)
				}
			}
			modes := []string{"MINIMAL", "FULL"}
			if maria {
				modes = append(modes, "NO_LOG")
			}
			old := b.Scalar(t, "", "SELECT @@global.binlog_row_metadata")
			t.Cleanup(func() { b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+old+"'") })
			long, _ := time.ParseDuration(os.Getenv("OUTTAIL_VALUES"))
			only, repeat := os.LookupEnv("OUTTAIL_VALUES_SEED")
			begun := time.Now()
			for round := 0; round < 8 || time.Since(begun) < long; round++ {
				// The same tables in every run, unless a long one is asked for: what is found there is then mended, and stays found.
				seed := uint64(round)
				if long > 0 {
					seed = rand.Uint64()
				}
				if repeat {
					seed, _ = strconv.ParseUint(only, 10, 64)
				}
				mode := modes[round%len(modes)]
				b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+mode+"'")
				g.Rand = rand.New(rand.NewPCG(seed, 0))
				if !g.round(t, fmt.Sprintf("seed %d, metadata %s", seed, mode)) || repeat {
					return
				}
			}
		})
	}
}

// randomColumn is a column and how its values are made.
type randomColumn struct {
	name, definition string
	binary           bool // compared by its bytes
	payloadOnly      bool
	legacy           bool // text that may have no character in Unicode
	generated        bool
	value            func() string // SQL
}

type randomTable struct {
	*rand.Rand
	b        *bench
	maria    bool
	charsets []string
	n        int
}

func (g *randomTable) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g *randomTable) round(t *testing.T, what string) bool {
	g.n++
	name := fmt.Sprintf("r%d", g.n)
	columns := make([]*randomColumn, 6+g.IntN(20))
	for i := range columns {
		columns[i] = g.column(fmt.Sprintf("c%d", i))
	}
	definitions := []string{}
	for _, c := range columns {
		definitions = append(definitions, c.name+" "+c.definition)
	}
	at := g.IntN(len(definitions))
	definitions = slices.Insert(definitions, at, "seq INT UNIQUE")
	ddl := []string{"CREATE TABLE " + name + " (" + strings.Join(definitions, ", ") + ") CHARACTER SET " + g.pick("latin1", "utf8mb4")}
	if g.IntN(2) == 0 {
		// A column that went and one that came at once: the row's format on disk then differs from the definition's.
		drop := g.IntN(len(columns))
		if !columns[drop].generated {
			ddl = append(ddl, "INSERT INTO "+name+" (seq) VALUES (0)", "ALTER TABLE "+name+" DROP COLUMN "+columns[drop].name)
			columns = slices.Delete(columns, drop, drop+1)
		}
		c := g.column("added")
		if !c.generated {
			place := g.pick("FIRST", "AFTER seq", "")
			ddl = append(ddl, "ALTER TABLE "+name+" ADD COLUMN "+c.name+" "+c.definition+" "+place)
			columns = append(columns, c)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	conn, err := g.b.DB.Conn(ctx)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for _, q := range append([]string{"USE " + g.b.db, "SET NAMES utf8mb4", "SET sql_mode = ''"}, ddl...) {
		_, err := conn.ExecContext(ctx, q)
		require.NoError(t, err, "%s: %s", what, q)
	}
	o := g.b.options(t, name)
	o.Columns = event.Columns{}
	roles := map[event.Role]*randomColumn{}
	for r := range event.RoleCount {
		c := columns[g.IntN(len(columns))]
		if c.payloadOnly && r != event.Payload {
			continue
		}
		roles[r] = c
		o.Columns[r] = event.Mapping{Column: c.name}
	}
	s := open(t, o, event.Checkpoint{})
	defer func() { _ = s.Close() }()
	defer func() {
		if t.Failed() {
			t.Logf("%s: %.3000s", what, strings.Join(ddl, ";\n"))
		}
	}()
	rows := 1 + g.IntN(6)
	for i := range rows {
		names, values := []string{"seq"}, []string{strconv.Itoa(i + 1)}
		for _, c := range columns {
			if !c.generated && g.IntN(12) > 0 {
				v := "NULL"
				if g.IntN(8) > 0 {
					v = c.value()
				}
				names, values = append(names, c.name), append(values, v)
			}
		}
		q := "INSERT IGNORE INTO " + name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
		_, err := conn.ExecContext(ctx, q)
		require.NoError(t, err, "%s: %.2000s", what, q)
	}
	print := []string{}
	for _, c := range columns {
		if c.binary {
			print = append(print, c.name)
		} else {
			print = append(print, "CONVERT(CAST("+c.name+" AS CHAR) USING utf8mb4)")
		}
	}
	truth := g.truth(t, ctx, conn, "SELECT "+strings.Join(print, ", ")+" FROM "+name+" WHERE seq > 0 ORDER BY seq", len(columns))
	if len(truth) == 0 {
		return true
	}
	seen := 0
	for seen < len(truth) {
		batch, err := s.Read(ctx)
		require.NoError(t, err, what)
		for i := range batch.Events {
			ev := &batch.Events[i]
			for r, c := range roles {
				k := slices.Index(columns, c)
				want, got := truth[seen][k], ev.Row[r]
				place := fmt.Sprintf("%s: row %d, role %s, %s %s", what, seen, r, c.name, c.definition)
				if ev.Err != nil && !got.Set {
					// Where the server has no character it prints a question mark, or nothing from there on.
					length := fmt.Sprintf("SELECT CHAR_LENGTH(%s) FROM %s WHERE seq > 0 ORDER BY seq LIMIT %d, 1", c.name, name, seen)
					if c.legacy && want.Valid && (strings.ContainsAny(want.String, "?\ufffd") || !utf8.ValidString(want.String) ||
						strconv.Itoa(utf8.RuneCountInString(want.String)) != g.b.Scalar(t, g.b.db, length)) {
						continue
					}
					t.Errorf("%.600s: %v, the server prints %q, and holds %s", place, ev.Err, want.String, g.b.Scalar(t, g.b.db, fmt.Sprintf("SELECT HEX(%s) FROM %s WHERE seq > 0 ORDER BY seq LIMIT %d, 1", c.name, name, seen)))
					return false
				}
				if !want.Valid || got.Null {
					if !got.Null || want.Valid {
						t.Errorf("%.600s: NULL %v, the server says %v", place, got.Null, !want.Valid)
						return false
					}
					continue
				}
				text := want.String
				if c.binary && r != event.Payload {
					text = hex.EncodeToString([]byte(text))
				}
				if text != string(got.Bytes) {
					t.Errorf("%.600s:\n got %.300q,\nwant %.300q", place, got.Bytes, text)
					return false
				}
			}
			seen++
		}
		if batch.Release != nil {
			batch.Release()
		}
	}
	_, err = conn.ExecContext(ctx, "DROP TABLE "+name)
	require.NoError(t, err)
	return true
}

func (g *randomTable) truth(t *testing.T, ctx context.Context, conn *sql.Conn, query string, n int) (out [][]sql.NullString) {
	rows, err := conn.QueryContext(ctx, query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		row := make([]sql.NullString, n)
		to := make([]any, n)
		for i := range row {
			to[i] = &row[i]
		}
		require.NoError(t, rows.Scan(to...))
		out = append(out, row)
	}
	require.NoError(t, rows.Err())
	return out
}

// column makes a column of a random type.
func (g *randomTable) column(name string) *randomColumn {
	c := g.typed(name)
	if g.IntN(12) == 0 && !c.payloadOnly && !strings.Contains(c.definition, "INET") {
		// Generated from a constant, since other columns may be of any type.
		c = &randomColumn{definition: "VARCHAR(40) CHARACTER SET " + g.pick("latin1", "utf8mb4", "cp1251") + " AS (CONCAT('g', LENGTH('abc'), 'ü'))", generated: true, legacy: true}
		c.definition += g.pick(" STORED", " VIRTUAL")
	} else if g.IntN(4) == 0 && !strings.Contains(c.definition, "TIMESTAMP") {
		c.definition += " NULL"
	}
	if g.IntN(10) == 0 {
		c.definition += " INVISIBLE"
	}
	c.name = name
	return c
}

func (g *randomTable) typed(name string) *randomColumn {
	switch k := g.IntN(34); k {
	case 0, 1, 2, 3, 4:
		size := []uint{8, 16, 24, 32, 64}[k]
		d := []string{"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"}[k]
		unsigned := g.IntN(2) == 0
		if unsigned {
			d += " UNSIGNED"
			if g.IntN(4) == 0 {
				d = strings.Replace(d, " ", fmt.Sprintf("(%d) ", 1+g.IntN(20)), 1) + " ZEROFILL"
			}
		}
		return &randomColumn{definition: d, value: func() string {
			v := g.Uint64() >> (64 - size)
			if g.IntN(4) == 0 {
				v = []uint64{0, 1, 1 << (size - 1), 1<<(size-1) - 1, 1<<size - 1}[g.IntN(5)] & (1<<size - 1)
				if size == 64 && v == 0 {
					v = ^uint64(0)
				}
			}
			if unsigned {
				return strconv.FormatUint(v, 10)
			}
			return strconv.FormatInt(int64(v<<(64-size))>>(64-size), 10)
		}}
	case 5, 6:
		p := 1 + g.IntN(65)
		s := g.IntN(min(p, 30) + 1)
		return &randomColumn{definition: fmt.Sprintf("DECIMAL(%d,%d)%s", p, s, g.pick("", "", " UNSIGNED", " ZEROFILL")), value: func() string {
			v := g.digits(g.IntN(p-s+1)) + "0." + g.digits(g.IntN(s+1))
			if p > s && g.IntN(2) == 0 {
				v = g.digits(p-s) + "." + g.digits(s)
			}
			return g.pick("", "-") + v
		}}
	case 7:
		d := "FLOAT"
		if g.IntN(4) == 0 {
			d = fmt.Sprintf("FLOAT(%d,%d)", 10+g.IntN(20), g.IntN(10))
		}
		return &randomColumn{definition: d + g.pick("", "", " UNSIGNED"), value: g.real}
	case 8, 9:
		d := "DOUBLE"
		if g.IntN(4) == 0 {
			d = fmt.Sprintf("DOUBLE(%d,%d)", 30+g.IntN(20), g.IntN(30))
		}
		return &randomColumn{definition: d, value: g.real}
	case 10:
		n := 1 + g.IntN(64)
		return &randomColumn{definition: fmt.Sprintf("BIT(%d)", n), binary: true, value: func() string { return fmt.Sprintf("b'%b'", g.Uint64()>>(64-n)) }}
	case 11:
		return &randomColumn{definition: "YEAR", value: func() string { return strconv.Itoa([]int{0, 1901 + g.IntN(255), 2155}[g.IntN(3)]) }}
	case 12:
		return &randomColumn{definition: "DATE", value: func() string { return "'" + g.date() + "'" }}
	case 13, 14:
		return &randomColumn{definition: g.fsp("TIME"), value: func() string {
			return fmt.Sprintf("'%s%d:%02d:%02d.%06d'", g.pick("", "-"), g.IntN([]int{1, 24, 839}[g.IntN(3)]), g.IntN(60), g.IntN(60), g.IntN(1000000))
		}}
	case 15:
		return &randomColumn{definition: g.fsp("DATETIME"), value: func() string { return "'" + g.date() + " " + g.clock() + "'" }}
	case 16, 17:
		return &randomColumn{definition: g.fsp("TIMESTAMP") + " NULL", value: func() string {
			if g.IntN(6) == 0 {
				return "'0000-00-00 00:00:00'"
			}
			return time.Unix(1+g.Int64N(1<<31-2), 0).UTC().Format("'2006-01-02 15:04:05.") + g.digits(6) + "'"
		}}
	case 18, 19, 20, 21, 22:
		return g.text()
	case 23, 24, 25:
		return g.labels()
	case 26, 27, 28:
		n := 1 + g.IntN(255)
		d := g.pick(fmt.Sprintf("BINARY(%d)", n), "BINARY(16)", fmt.Sprintf("VARBINARY(%d)", 2*n), "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB")
		if strings.HasPrefix(d, "BINARY(") {
			_, _ = fmt.Sscanf(d, "BINARY(%d)", &n)
		}
		return &randomColumn{definition: d, binary: true, value: func() string {
			b := g.bytes(g.IntN(n + 1))
			for i := len(b) - 1; i >= 0 && g.IntN(3) > 0; i-- {
				b[i] = 0
			}
			return "x'" + hex.EncodeToString(b) + "'"
		}}
	case 29, 30, 31:
		if g.maria {
			return &randomColumn{definition: "JSON", value: func() string { return quoted(g.jsonText(0)) }}
		}
		return &randomColumn{definition: "JSON", value: func() string { return g.json(0) }}
	case 32:
		return &randomColumn{definition: g.pick("GEOMETRY", "POINT"), binary: true, payloadOnly: true, value: func() string { return fmt.Sprintf("ST_GeomFromText('POINT(%d %d)')", g.IntN(90), g.IntN(90)) }}
	}
	if !g.maria {
		n := 1 + g.IntN(4)
		return &randomColumn{definition: fmt.Sprintf("VECTOR(%d)", n+2), binary: true, value: func() string {
			return fmt.Sprintf("STRING_TO_VECTOR('[%s1.5]')", strings.Repeat(fmt.Sprintf("%d.25,", g.IntN(1000)), g.IntN(n)+1))
		}}
	}
	switch g.IntN(4) {
	case 0:
		return &randomColumn{definition: "UUID", value: func() string {
			h := hex.EncodeToString(g.bytes(16))
			return "'" + h[:8] + "-" + h[8:12] + "-" + g.pick("1", "4", "7") + h[13:16] + "-" + g.pick("8", "a", "0") + h[17:20] + "-" + h[20:] + "'"
		}}
	case 1:
		return &randomColumn{definition: "INET4", value: func() string {
			return fmt.Sprintf("'%d.%d.%d.%d'", g.IntN(256), g.IntN(256), g.IntN(2)*g.IntN(256), g.IntN(2)*g.IntN(256))
		}}
	case 2:
		return &randomColumn{definition: "INET6", value: func() string {
			var w []string
			for range 8 {
				w = append(w, strconv.FormatInt(int64(g.IntN(2)*g.IntN(1<<16)), 16))
			}
			return "'" + strings.Join(w, ":") + "'"
		}}
	}
	cs := g.charset()
	return &randomColumn{definition: g.pick("VARCHAR(300) COMPRESSED", "TEXT COMPRESSED") + " CHARACTER SET " + cs, legacy: true, value: func() string { return g.string(cs, 150) }}
}

func (g *randomTable) charset() string { return g.charsets[g.IntN(len(g.charsets))] }

func (g *randomTable) fsp(kind string) string {
	if n := g.IntN(7); n > 0 {
		return fmt.Sprintf("%s(%d)", kind, n)
	}
	return kind
}

func (g *randomTable) digits(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + g.IntN(10)*g.IntN(2))
	}
	return string(b)
}

func (g *randomTable) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g *randomTable) real() string {
	switch g.IntN(5) {
	case 0:
		return fmt.Sprintf("%de%d", g.IntN(2000)-1000, g.IntN(40)-20)
	case 1:
		return strconv.FormatFloat(g.NormFloat64()*1e3, 'g', -1, 64)
	case 2:
		return strconv.FormatFloat(float64(float32(g.NormFloat64())), 'g', -1, 64)
	case 3:
		return strconv.Itoa(g.IntN(1<<31) - 1<<30)
	}
	return fmt.Sprintf("%s%d.%se%d", g.pick("", "-"), g.IntN(10), g.digits(16), g.IntN(600)-300)
}

func (g *randomTable) date() string {
	return fmt.Sprintf("%04d-%02d-%02d", []int{0, g.IntN(10000), 2026}[g.IntN(3)], g.IntN(13), g.IntN(29))
}

func (g *randomTable) clock() string {
	return fmt.Sprintf("%02d:%02d:%02d.%06d", g.IntN(24), g.IntN(60), g.IntN(60), g.IntN(1000000))
}

func quoted(s string) string {
	return "'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(s) + "'"
}

// unicode makes text of characters from everywhere.
func (g *randomTable) unicode(n int) string {
	var b strings.Builder
	for range g.IntN(n + 1) {
		from, count := 0x20, 0x5f
		switch g.IntN(9) {
		case 0:
			from, count = 0xa0, 0x160
		case 1:
			from, count = 0x370, 0x250
		case 2:
			from, count = 0x3041, 0xb0
		case 3:
			from, count = 0x4e00, 0x5000
		case 4:
			from, count = 0xac00, 0x2b00
		case 5:
			from, count = 0x2010, 0x700
		case 6:
			from, count = 0x1f300, 0x300
		case 7:
			from, count = 1, 0x7e
		}
		b.WriteRune(rune(from + g.IntN(count)))
	}
	return b.String()
}

// string makes a text value for a character set: converted from Unicode, or of random bytes as far as they are well formed.
func (g *randomTable) string(cs string, n int) string {
	if g.IntN(3) == 0 {
		b := g.bytes(g.IntN(n + 1))
		return "CONVERT(x'" + hex.EncodeToString(b) + "' USING " + cs + ")"
	}
	return quoted(g.unicode(n))
}

func (g *randomTable) text() *randomColumn {
	cs := g.charset()
	n := 1 + g.IntN(60)
	d := g.pick(fmt.Sprintf("CHAR(%d)", n), fmt.Sprintf("VARCHAR(%d)", n), fmt.Sprintf("VARCHAR(%d)", 4*n), "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
	return &randomColumn{definition: d + " CHARACTER SET " + cs, legacy: true, value: func() string { return g.string(cs, n) }}
}

func (g *randomTable) labels() *randomColumn {
	cs := g.charset()
	set := g.IntN(2) == 0
	n := 1 + g.IntN(10)
	if g.IntN(4) == 0 {
		n = 64
		if !set {
			n = 300
		}
	}
	kind, list := "ENUM", make([]string, n)
	if set {
		kind = "SET"
	}
	for i := range list {
		label := fmt.Sprintf("%s%d%s", g.pick("", "ä", "é", "я", "中", "a b", "ア"), i, g.pick("", "'", "''x", `\`, `\n`, "\n", "\t", `"`, ")", "€", "x y", "%"))
		if !set {
			label += g.pick("", ",", ",x")
		}
		list[i] = quoted(label)
	}
	return &randomColumn{definition: kind + "(" + strings.Join(list, ",") + ") CHARACTER SET " + cs, legacy: true, value: func() string {
		if set {
			return strconv.FormatUint(g.Uint64()>>(64-n), 10)
		}
		return strconv.Itoa(g.IntN(n + 1))
	}}
}

// jsonText makes JSON as text, with freedoms that only a text column keeps.
func (g *randomTable) jsonText(depth int) string {
	switch g.IntN(8) {
	case 0:
		return g.pick("null", "true", "false")
	case 1:
		return g.pick("", "-") + strconv.FormatUint(g.Uint64()>>g.IntN(64), 10)
	case 2:
		return g.pick("1.0", "-0.0", "1e3", "12345678901234567890.10", "0.1e-7")
	case 3, 4:
		if depth < 4 {
			var list []string
			for range g.IntN(5) {
				list = append(list, g.jsonText(depth+1))
			}
			return "[" + strings.Join(list, g.pick(",", ", ", "  ,\n")) + "]"
		}
	case 5, 6:
		if depth < 4 {
			var list []string
			for range g.IntN(5) {
				list = append(list, fmt.Sprintf(`"%s":%s`, g.pick("a", "b", "ä", "", "long key"), g.jsonText(depth+1)))
			}
			return "{" + strings.Join(list, ", ") + "}"
		}
	}
	return `"` + g.pick("x", "ä€😀", `\n\"\\`, `\u0001\u00e4`, "") + `"`
}

// json makes an expression of type JSON, with values that only SQL can make.
func (g *randomTable) json(depth int) string {
	if g.IntN(3) == 0 {
		return "CAST(" + quoted(g.jsonText(depth)) + " AS JSON)"
	}
	switch g.IntN(12) {
	case 0, 1, 2:
		if depth < 4 {
			var list []string
			for range g.IntN(6) {
				list = append(list, g.json(depth+1))
			}
			return "JSON_ARRAY(" + strings.Join(list, ", ") + ")"
		}
	case 3, 4, 5:
		if depth < 4 {
			var list []string
			for i := range g.IntN(6) {
				list = append(list, quoted(g.unicode(8)+strconv.Itoa(i)), g.json(depth+1))
			}
			return "JSON_OBJECT(" + strings.Join(list, ", ") + ")"
		}
	}
	var v string
	switch g.IntN(12) {
	case 0:
		p := 1 + g.IntN(65)
		s := g.IntN(min(p, 30) + 1)
		v = fmt.Sprintf("CAST(%s%s.%s AS DECIMAL(%d,%d))", g.pick("", "-"), g.digits(max(p-s, 1)), g.digits(s)+"0", p, s)
	case 1:
		v = "CAST('" + g.date() + "' AS DATE)"
	case 2:
		v = fmt.Sprintf("CAST('%s%d:%s' AS TIME(%d))", g.pick("", "-"), g.IntN(800), g.clock()[3:], g.IntN(7))
	case 3:
		v = fmt.Sprintf("CAST('%s %s' AS DATETIME(%d))", g.date(), g.clock(), g.IntN(7))
	case 4:
		v = fmt.Sprintf("b'%b'", g.Uint32())
	case 5:
		v = "x'" + hex.EncodeToString(g.bytes(g.IntN(100)+1)) + "'"
	case 6:
		v = fmt.Sprintf("CAST('%s' AS DOUBLE)", g.real())
	case 7:
		v = fmt.Sprintf("CAST(%d AS UNSIGNED)", g.Uint64()>>g.IntN(64))
	case 8:
		v = fmt.Sprintf("CAST(%d AS SIGNED)", int64(g.Uint64())>>g.IntN(64))
	case 9:
		v = fmt.Sprintf("REPEAT(%s, %d)", quoted(g.unicode(20)), 1+g.IntN(5000))
	case 10:
		v = "CAST(2026 AS YEAR)"
	default:
		v = quoted(g.unicode(20))
	}
	if depth == 0 {
		return "JSON_EXTRACT(JSON_ARRAY(" + v + "), '$[0]')"
	}
	return v
}
