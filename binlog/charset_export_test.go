package binlog

import "golang.org/x/text/encoding"

// StandardOf is the encoding that a character set is nearest to; known is false where the text is UTF-8 or unknown.
func StandardOf(name string) (standard encoding.Encoding, known bool) {
	standard, known = standards[name]
	return standard, known
}

// ReadableCharset tells of a character set whether columns of it may be mapped.
func ReadableCharset(name string) bool { return readable(name) }

// ToUTF8 reads bytes of a character set; with plain as the standard says, without what the servers do otherwise.
func ToUTF8(name string, plain bool) func(b []byte) (string, bool) {
	_, enc := charsets{}.of(name)
	if plain {
		t := &textTable{}
		if standard := standards[name]; standard != nil {
			t.fill(name, standard)
		} else {
			for i := range t.single {
				t.single[i] = noRune
				if i < 0x80 {
					t.single[i] = rune(i)
				}
			}
		}
		enc = t
	}
	return func(b []byte) (string, bool) {
		out, err := enc.appendUTF8(nil, b)
		return string(out), err == nil
	}
}
