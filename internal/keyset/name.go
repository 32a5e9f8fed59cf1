// Package keyset says which names may become queue names, routing keys, subjects and keys.
// It is the one place that knows the pattern, so that both ends and every adapter refuse the same names.
package keyset

// MaxName is the longest name in bytes.
const MaxName = 128

// ValidName reports whether s may name a task or a queue: 1 to 128 bytes of ASCII letters, digits, '.', '_' and '-',
// the first of them a letter or a digit. None of these needs escaping in an AMQP name, a Redis key or a file name;
// '.' separates tokens in AMQP topics and NATS subjects, so an adapter that builds those encodes it.
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

// names has a dot for each byte that a name may have. Every task passes here several times, and one look-up takes less than
// to compare with the ends of four ranges.
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

// ASCII reports whether s is ASCII alone, and so UTF-8 besides: nearly all texts are, and to see that takes less than to read
// characters.
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

// Every byte's lowest and highest bit.
const (
	ones = 0x0101010101010101
	top  = 0x80 * ones
)

// word is the eight bytes of s.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// invisible returns the top bits of those bytes of w that are not visible ASCII: they have it, or get it when 1 is added (0x7F),
// or lose it, once set, when 0x21 is taken away.
func invisible(w uint64) uint64 {
	return (w | ((w &^ top) + ones) | ^((w | top) - 0x21*ones)) & top
}
