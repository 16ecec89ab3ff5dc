package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// With binlog_row_metadata=FULL the log says all by itself. What a table has none of is not in its map.
func TestWhenTheLogAloneIsEnough(t *testing.T) {
	text := column{kind: typeVarchar, charset: 255}
	for _, c := range []struct {
		name  string
		m     tableMap
		alone bool
	}{
		{"names and charsets, no numbers", tableMap{named: true, columns: []column{text, {kind: typeJSON}}}, true},
		{"numbers and their signs", tableMap{named: true, signs: true, columns: []column{text, {kind: typeLong}}}, true},
		{"numbers without signs", tableMap{named: true, columns: []column{text, {kind: typeLong}}}, false},
		{"no names", tableMap{signs: true, columns: []column{text}}, false},
		{"text without a charset", tableMap{named: true, columns: []column{{kind: typeVarchar, charset: charsetUnproved}}}, false},
		{"an ENUM without labels", tableMap{named: true, columns: []column{{kind: typeEnum}}}, false},
	} {
		require.Equal(t, c.alone, c.m.complete(), c.name)
	}
}
