package binlog

import (
	"fmt"
	"strconv"
	"strings"
)

// fits compares a definition with a table map and says how they differ; "" is that they do not. The log gives for each column the kind,
// and its length, precision or size; with MINIMAL metadata the sign and the character set too. A definition that passes may
// still be the wrong one (two columns that differ by nothing but their names), so that this proves nothing: it refutes.
func (s *Source) fits(t *tableMap, d definition) string {
	if len(t.columns) != len(d) {
		return fmt.Sprintf("the log has %d columns, the definition %d", len(t.columns), len(d))
	}
	for i := range d {
		l := &t.columns[i]
		def, err := parseColumnType(d[i].Type)
		if err != nil {
			return fmt.Sprintf("column %s: %v", d[i].Name, err)
		}
		differs := func(logged string) string {
			return fmt.Sprintf("column %d is %s in the log, and %s %s in the definition", i+1, logged, d[i].Name, d[i].words())
		}
		if t.named && !equalFold(l.name, d[i].Name) {
			return differs("named " + l.name)
		}
		if !kindFits(l.kind, def.kind) {
			return differs(kindWord(l))
		}
		if t.signs && l.numeric() && l.kind != typeYear && l.unsigned != def.unsigned {
			return differs(map[bool]string{true: "unsigned", false: "signed"}[l.unsigned])
		}
		charset := d[i].Charset
		if charset == "" && l.character() {
			charset = "binary"
		}
		if logged := s.charset(l.charset); t.charsets && l.character() && def.opaque == 0 && logged != "" {
			if charset == charsetUnsaid {
				charset = logged
			}
			if charset != logged {
				return differs("of character set " + logged)
			}
		}
		if want, ok := metaOf(d[i].Type, charset); ok && metaCounts(l.kind) && def.opaque == 0 && want != l.meta {
			return differs(kindWord(l))
		}
	}
	return ""
}

// words is a column without its name.
func (c defColumn) words() string {
	if c.Charset == "" || c.Charset == charsetUnsaid {
		return c.Type
	}
	return c.Type + " character set " + c.Charset
}

// metaCounts: old and compressed formats have metadata of their own.
func metaCounts(kind byte) bool {
	switch kind {
	case typeVarchar, typeString, typeNewDecimal, typeEnum, typeSet, typeBit, typeBlob, typeTimestamp2, typeDatetime2, typeTime2:
		return true
	}
	return false
}

// bytesPerChar is what a character may take (mbmaxlen); a set that is not here is not compared.
var bytesPerChar = map[string]int{"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "latin1": 1, "ascii": 1, "binary": 1}

// metaOf gives the metadata that the log has for a type of the catalogue, as far as it is plain.
func metaOf(text, charset string) (meta uint16, ok bool) {
	text = strings.ToLower(text)
	head := text
	if i := strings.IndexAny(text, " ("); i >= 0 {
		head = text[:i]
	}
	args, has := "", false
	if from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')'); from == len(head) && to > from {
		args, has = text[from+1:to], true
	}
	if strings.Contains(text[len(head)+len(args):], "/*") {
		return 0, false
	}
	first, second, _ := strings.Cut(args, ",")
	n, err := strconv.Atoi(strings.TrimSpace(first))
	if !has {
		n, err = 0, nil
	}
	switch head {
	case "char", "varchar":
		width := bytesPerChar[charset]
		return uint16(n * width), has && err == nil && width > 0 && n*width < 1<<16
	case "binary", "varbinary":
		return uint16(n), has && err == nil
	case "decimal", "numeric":
		m, err2 := strconv.Atoi(strings.TrimSpace(second))
		if second == "" {
			m, err2 = 0, nil
		}
		return uint16(n | m<<8), has && err == nil && err2 == nil
	case "timestamp", "datetime", "time":
		return uint16(n), err == nil
	case "bit":
		return uint16(n%8 | n/8<<8), has && err == nil
	case "enum":
		// By the label's number.
		if labels := len(parseLabels(args)); labels < 256 {
			return 1, labels > 0
		}
		return 2, true
	case "set":
		labels := len(parseLabels(args))
		size := (labels + 7) / 8
		if size > 4 {
			size = 8
		}
		return uint16(size), labels > 0
	case "tinyblob", "tinytext":
		return 1, !has
	case "blob", "text":
		return 2, !has
	case "mediumblob", "mediumtext":
		return 3, !has
	case "longblob", "longtext":
		return 4, !has
	}
	return 0, false
}
