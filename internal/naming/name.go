// Package naming validates the names that may become queue names, routing keys, subjects and keys.
// No other package has the pattern, so both ends and every adapter refuse the same names.
package naming

// MaxName is the maximum length of a name in bytes.
const MaxName = 128

// ValidName reports whether s may name a task or a queue: 1 to 128 bytes of ASCII letters, digits,
// '.', '_' and '-'. The first byte must be a letter or a digit.
//
// None of these bytes needs escaping in an AMQP name, a Redis key or a file name. '.' separates
// tokens in AMQP topics and NATS subjects, so an adapter that builds those encodes it.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxName || s[0] == '.' || s[0] == '_' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if names[s[i]] != '.' {
			return false
		}
	}
	return true
}

// names has a dot for each byte that a name may contain. Every task is checked here several times,
// and one table access is faster than comparisons with four ranges.
const names = "" +
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" +
	"xxxxxxxxxxxxx..x..........xxxxxx" +
	"x..........................xxxx." +
	"x..........................xxxxx" +
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" +
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" +
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" +
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// ValidID reports whether s may identify a task: 1 to 128 bytes of visible ASCII (0x21 to 0x7E).
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	if len(s) < 8 {
		for i := range len(s) {
			if s[i] < 0x21 || s[i] > 0x7e {
				return false
			}
		}
		return true
	}
	var bad uint64
	for i := 0; i+8 < len(s); i += 8 {
		bad |= invisible(word(s[i : i+8]))
	}
	return bad|invisible(word(s[len(s)-8:])) == 0
}

// ASCII reports whether s contains only ASCII bytes, and so is valid UTF-8. Nearly all texts are
// ASCII, and this check is faster than decoding characters.
func ASCII(s string) bool {
	if len(s) < 8 {
		for i := range len(s) {
			if s[i] >= 0x80 {
				return false
			}
		}
		return true
	}
	var bits uint64
	for i := 0; i+8 < len(s); i += 8 {
		bits |= word(s[i : i+8])
	}
	return (bits|word(s[len(s)-8:]))&top == 0
}

// ones has the lowest bit of each byte set, and top has the highest.
const (
	ones = 0x0101010101010101
	top  = 0x80 * ones
)

// word returns the first eight bytes of s as a little-endian number. s must have at least eight
// bytes.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// invisible returns the top bits of the bytes of w that are not visible ASCII. Such a byte has its
// top bit set, or gets it when 1 is added (0x7F). Or its top bit, once set, is cleared when 0x21 is
// subtracted.
func invisible(w uint64) uint64 {
	return (w | ((w &^ top) + ones) | ^((w | top) - 0x21*ones)) & top
}
