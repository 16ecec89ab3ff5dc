package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

func TestColumnsAreReadAsSHOWCREATETABLEWritesThem(t *testing.T) {
	for text, want := range map[string]definition{
		"id bigint":                                   {{Name: "id", Type: "bigint"}},
		"id BIGINT(20) UNSIGNED NOT NULL, n int":      {{Name: "id", Type: "bigint(20) unsigned"}, {Name: "n", Type: "int"}},
		"`a``b` int(6) unsigned zerofill DEFAULT '1'": {{Name: "a`b", Type: "int(6) unsigned zerofill"}},
		"v varchar(20) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'a,b (unsigned'": {{Name: "v", Type: "varchar(20)", Charset: "latin1"}},
		"v varchar(20) COLLATE utf8mb4_bin NOT NULL, w text charset `cp1251`":           {{Name: "v", Type: "varchar(20)", Charset: "utf8mb4"}, {Name: "w", Type: "text", Charset: "cp1251"}},
		"v varchar(20)":          {{Name: "v", Type: "varchar(20)", Charset: charsetUnsaid}},
		"b blob, c varbinary(3)": {{Name: "b", Type: "blob"}, {Name: "c", Type: "varbinary(3)"}},
		"e enum( 'a' , 'b,)''c' ) character set latin1 comment 'unsigned'": {{Name: "e", Type: "enum('a','b,)''c')", Charset: "latin1"}},
		"d decimal(10, 2)": {{Name: "d", Type: "decimal(10,2)"}},
		"`key` int, `date` date,\n  PRIMARY KEY (`key`), KEY `date` (`date`,`key`), UNIQUE KEY u (`date`), CONSTRAINT c CHECK (`key` > 1)": {{Name: "key", Type: "int"}, {Name: "date", Type: "date"}},
		"g varchar(9) CHARACTER SET ascii GENERATED ALWAYS AS (concat('unsigned ', 'x')) VIRTUAL, j json":                                  {{Name: "g", Type: "varchar(9)", Charset: "ascii"}, {Name: "j", Type: "json"}},
	} {
		got, err := parseDefinition(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", " , ", "id", "id nothing", "id int, ID bigint", "id int(", "e enum", "e enum('a'", "`id int", "id int)", "PRIMARY KEY (id)", "int"} {
		_, err := parseDefinition(text)
		require.Error(t, err, text)
	}
}

func TestColumnsThatAreShownCanBeGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z `,('\"Ä]{1,8}"), 1, 5, func(s string) string { return s }).Draw(t, "names")
		var d definition
		for _, n := range names {
			d = append(d, rapid.SampledFrom([]defColumn{
				{Name: n, Type: "bigint unsigned"}, {Name: n, Type: "decimal(10,2) unsigned zerofill"}, {Name: n, Type: "enum('a,','''(')", Charset: "utf8mb4"},
				{Name: n, Type: "longtext", Charset: "latin1"}, {Name: n, Type: "json"}, {Name: n, Type: "binary(16)"}, {Name: n, Type: "timestamp(6)"},
			}).Draw(t, "column"))
		}
		got, err := parseDefinition(d.String())
		if err != nil || got.String() != d.String() || len(got) != len(d) {
			t.Fatalf("%s became %s (%v)", d, got, err)
		}
	})
}

func TestWhatCannotBeVouchedForIsRefusedBeforeAServerIsAsked(t *testing.T) {
	known := event.Checkpoint{Position: event.Position{Kind: event.MariaDB, File: "binlog.000001", Pos: 4}}
	for _, c := range []struct {
		cp                 event.Checkpoint
		table, at, columns string
		says               string
	}{
		{known, "shop.orders", "binlog.000001:4", "id int", "no such table"},
		{known, "shop.outbox", "binlog.000001:4", "id", "no type"},
		{known, "shop.outbox", "binlog.000001:4", "id int, payload longtext", "column payload has no character set"},
		{known, "shop.outbox", "binlog.000001", "id int", "not FILE:POS"},
		{known, "shop.outbox", "0-1-17", "id int", "not FILE:POS"},
		{known, "shop.outbox", "binlog.000001:3", "id int", "not FILE:POS"},
		{event.Checkpoint{}, "shop.outbox", "binlog.000001:4", "id int", "no position yet"},
	} {
		_, err := Vouch(t.Context(), Options{Kind: event.MariaDB, Pipeline: "orders", Tables: []string{"shop.outbox"}}, c.cp, c.table, c.at, c.columns)
		f := event.AsFault(err)
		require.NotNil(t, f, c.says)
		require.Equal(t, codeVouch, f.Code)
		require.Equal(t, event.Usage, f.Class)
		require.NotEmpty(t, f.Hint)
		require.Contains(t, f.Text, c.says)
	}
}
