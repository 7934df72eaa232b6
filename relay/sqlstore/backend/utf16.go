package backend

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// fromUTF16 makes UTF-8 of text in UTF-16, little-endian. Half of a pair of
// surrogates becomes U+FFFD.
func fromUTF16(text []byte) []byte {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(text[2*i:])
	}
	converted := make([]byte, 0, len(text))
	for _, r := range utf16.Decode(units) {
		converted = utf8.AppendRune(converted, r)
	}
	return converted
}
