package binlog_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/test/harness"
)

var update = binlog.Update

// every asks the server what every character of a character set is: code in hex to text; "" where it has no character.
func every(t *testing.T, c *sql.Conn, name string, codes string) map[string]string {
	t.Helper()
	rows, err := c.QueryContext(t.Context(), fmt.Sprintf(`SELECT GROUP_CONCAT(CONCAT(h, ':', HEX(CONVERT(CONVERT(UNHEX(h) USING %[1]s) USING utf8mb4))) SEPARATOR ' ')
		FROM (SELECT n, %[2]s h FROM numbers) q WHERE h IS NOT NULL AND HEX(CONVERT(CONVERT(UNHEX(h) USING %[1]s) USING binary)) = h
			AND CHAR_LENGTH(CONVERT(UNHEX(h) USING %[1]s)) = 1 GROUP BY n DIV 256`, name, codes))
	require.NoError(t, err, name)
	defer func() { _ = rows.Close() }()
	out := map[string]string{}
	for rows.Next() {
		var list string
		require.NoError(t, rows.Scan(&list))
		for _, pair := range strings.Fields(list) {
			code, text, _ := strings.Cut(pair, ":")
			b, err := hex.DecodeString(text)
			require.NoError(t, err)
			// A question mark stands for what has no character; a replacement character tells no more.
			if out[code] = string(b); out[code] == "?" && code != "3F" || out[code] == "\ufffd" {
				out[code] = ""
			}
		}
	}
	require.NoError(t, rows.Err())
	return out
}

// Whatever the server has a character for is read as that character, and nothing else is.
func TestEveryCharacterOfEveryCharacterSetIsTheServers(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			m := servers.MySQLWith(t, harness.MySQLOptions{MariaDB: kind == "mariadb"})
			db := m.NewDatabase(t)
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			c, err := m.DB.Conn(ctx)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			for _, q := range []string{"USE " + db, "SET sql_mode = '', group_concat_max_len = 1000000", "CREATE TABLE numbers (n INT PRIMARY KEY)", "CREATE TABLE digits (d INT)",
				"INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9),(10),(11),(12),(13),(14),(15)",
				"INSERT INTO numbers SELECT a.d*4096 + b.d*256 + c.d*16 + d.d FROM digits a, digits b, digits c, digits d"} {
				_, err := c.ExecContext(ctx, q)
				require.NoError(t, err, q)
			}
			rows, err := c.QueryContext(ctx, "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS ORDER BY 1")
			require.NoError(t, err)
			length, names := map[string]int{}, []string{}
			for rows.Next() {
				var name string
				var n int
				require.NoError(t, rows.Scan(&name, &n))
				require.True(t, binlog.ReadableCharset(name), name)
				length[name] = n
				names = append(names, name)
			}
			require.NoError(t, rows.Err())
			var lines []string
			for _, name := range names {
				if _, known := binlog.StandardOf(name); !known {
					continue // Unicode
				}
				truth := every(t, c, name, "IF(n < 256, LPAD(HEX(n), 2, '0'), NULL)")
				if length[name] > 1 {
					for code, text := range every(t, c, name, "IF(n >= 0x8140 AND n % 256 >= 0x40 AND n % 256 < 255 AND n < 0xff00, LPAD(HEX(n), 4, '0'), NULL)") {
						truth[code] = text
					}
				}
				if name == "ujis" || name == "eucjpms" {
					for code, text := range every(t, c, name, "IF(n >= 0xa1a1 AND n % 256 >= 0xa1 AND n % 256 < 255 AND n < 0xff00, CONCAT('8F', HEX(n)), NULL)") {
						truth[code] = text
					}
				}
				if name == "gb18030" {
					for code, text := range every(t, c, name, "IF(n < 39420, CONCAT(HEX(0x81 + n DIV 12600), HEX(0x30 + n DIV 1260 % 10), HEX(0x81 + n DIV 10 % 126), HEX(0x30 + n % 10)), NULL)") {
						truth[code] = text
					}
				}
				require.Greater(t, len(truth), 100, name)
				ours, plain := binlog.ToUTF8(name, false), binlog.ToUTF8(name, true)
				codes := make([]string, 0, len(truth))
				for code := range truth {
					codes = append(codes, code)
				}
				slices.SortFunc(codes, func(a, b string) int { return strings.Compare(fmt.Sprintf("%8s", a), fmt.Sprintf("%8s", b)) })
				wrong := 0
				run := corrections{name: name}
				for _, code := range codes {
					b, err := hex.DecodeString(code)
					require.NoError(t, err)
					if text, _ := plain(b); text != truth[code] {
						run.add(code, truth[code])
					}
					if text, ok := ours(b); text != truth[code] || ok != (text != "") {
						if wrong++; wrong < 5 && !*update {
							t.Errorf("%s %s: we read %q, the server %q", name, code, text, truth[code])
						}
					}
				}
				lines = append(lines, run.end()...)
			}
			if *update && kind == "mysql" { // MySQL has all that MariaDB has
				require.NoError(t, os.WriteFile("charsets.txt", []byte(strings.Join(lines, "\n")+"\n"), 0o644))
			}
		})
	}
}

// corrections joins neighbouring codes into lines.
type corrections struct {
	name         string
	lines        []string
	first, count int
	char         rune // of the first; -1 none
}

func (c *corrections) add(code, text string) {
	var n int
	_, _ = fmt.Sscanf(code, "%x", &n)
	r := rune(-1)
	if text != "" {
		r = []rune(text)[0]
	}
	next := c.char + rune(c.count)
	if c.char < 0 {
		next = -1
	}
	if c.count > 0 && n == c.first+c.count && r == next {
		c.count++
		return
	}
	c.flush()
	c.first, c.count, c.char = n, 1, r
}

func (c *corrections) flush() {
	if c.count == 0 {
		return
	}
	char := "-"
	if c.char >= 0 {
		char = fmt.Sprintf("%X", c.char)
	}
	c.lines = append(c.lines, fmt.Sprintf("%s %X %d %s", c.name, c.first, c.count, char))
	c.count = 0
}

func (c *corrections) end() []string {
	c.flush()
	return c.lines
}
