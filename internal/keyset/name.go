// Package keyset says which names may become queue names, routing keys, subjects and keys.
// It is the one place that knows the pattern, so that both ends and every adapter refuse the same names.
package keyset

// MaxName is the longest name in bytes.
const MaxName = 128

// ValidName reports whether s may name a task or a queue: 1 to 128 bytes of ASCII letters, digits, '.', '_' and '-',
// the first of them a letter or a digit. None of these needs escaping in an AMQP name, a Redis key or a file name;
// '.' separates tokens in AMQP topics and NATS subjects, so an adapter that builds those encodes it.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxName || !alphanumeric(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// ValidID reports whether s may identify a task: 1 to 128 bytes of visible ASCII (0x21 to 0x7E).
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
