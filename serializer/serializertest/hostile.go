package serializertest

import "bytes"

// Hostile is an input that attacks a decoder.
type Hostile struct {
	Name string
	Data []byte
}

// HostileInputs returns inputs in msgpack and JSON that are shorter than they claim, deeply nested
// or ambiguous. No input is a valid value that may be decoded.
func HostileInputs() []Hostile {
	rep := func(s string, n int) []byte { return bytes.Repeat([]byte(s), n) }
	nested := func(open, inner string, n int) []byte { return append(rep(open, n), inner...) }
	return []Hostile{
		{"array of 2^32-1 elements", []byte("\xdd\xff\xff\xff\xff")},
		{"map of 2^31-1 pairs", []byte("\xdf\x7f\xff\xff\xff")},
		{"bin of 2^32-1 bytes", []byte("\xc6\xff\xff\xff\xff")},
		{"str of 2^32-1 bytes", []byte("\xdb\xff\xff\xff\xff")},
		{"ext of 2^32-1 bytes", []byte("\xc9\xff\xff\xff\xff\x01")},
		{"extension that poses as a map", []byte("\xc7\x05\x01\xdf\x7f\xff\xff\xff")},
		{"never used code", []byte("\xc1")},
		{"nested arrays, 65", nested("\x91", "\xc0", 65)},
		{"nested arrays, 10000", nested("\x91", "\xc0", 10000)},
		{"nested arrays, 2000000", nested("\x91", "\xc0", 2000000)},
		{"nested maps, 100000", nested("\x81\xa1a", "\xc0", 100000)},
		{"chain of large arrays, 24000", rep("\xdc\xff\xff", 24000)},
		{"chain of large maps, 24000", rep("\xde\xff\xff", 24000)},
		{"JSON arrays, 1000000", rep("[", 1000000)},
		{"JSON objects, 1000000", rep(`{"a":`, 1000000)},
		{"JSON object with a key twice", []byte(`{"task":"a","id":"1","id":"2"}`)},
		{"JSON object with a key twice, one escaped", []byte(`{"task":"a","id":"1","\u0069d":"2"}`)},
		{"JSON object with a key twice, inside", []byte(`{"task":"a","args":[{"x":1,"x":2}]}`)},
		{"JSON NaN", []byte(`{"task":"a","args":NaN}`)},
		{"JSON huge exponent", []byte(`{"task":"a","args":1e999999999}`)},
		{"JSON exponent beyond float64", []byte(`{"task":"a","args":1e309}`)},
		{"JSON lone high surrogate", []byte(`{"task":"a","args":"\ud800"}`)},
		{"JSON lone low surrogate", []byte(`{"task":"a","args":"\udc00"}`)},
		{"JSON invalid UTF-8 name", []byte("{\"task\":\"a\xff\"}")},
		{"JSON with more after it", []byte(`{"task":"a"}{"task":"b"}`)},
		{"empty", nil},
		{"JSON cut after a brace", []byte("{ ")},
	}
}
