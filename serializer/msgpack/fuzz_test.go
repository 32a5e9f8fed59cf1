package msgpack

import (
	"bytes"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// seeds adds valid inputs and those hostile inputs that concern msgpack.
func seeds(f *testing.F) {
	add := func(b []byte) { f.Add(b) }
	for _, s := range []string{
		"\xdd\xff\xff\xff\xff", "\xdf\x7f\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x01",
		strings.Repeat("\x91", 65) + "\xc0", strings.Repeat("\x91", 10000) + "\xc0", strings.Repeat("\x81\xa1a", 1000) + "\xc0",
		strings.Repeat("\xdc\xff\xff", 1000), "\x82\x02\xa1a\x02\xa1b", "\x81\xa4name\xa1a", "\xd7\xff\xdf\x7f\xff\xff\xff\x00\x00\x00",
		"\xc7\x0c\xff\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", "\xc7\x05\x01\xdf\x7f\xff\xff\xff", "", "\xc0", "\x80",
		"\x81\x10\x81\xa1k\xa1v", "\x81\x0c\xff", "\x81\x0c\xcf\x80\x00\x00\x00\x00\x00\x00\x00", "\x81\x2b\xce\x80\x00\x00\x00",
		"\x82\x91\x01\x02\x90\x03", "\x81\x7f\x81\x01\xc3", "\x81\x11\x92\x81\x02\xa1a\x83\x02\xa1b\x43\x01\x44\x01",
	} {
		add([]byte(s))
	}
	for _, e := range []func(testing.TB) []byte{
		func(tb testing.TB) []byte { return mustEncode(tb, addEnvelope(tb)) },
		func(tb testing.TB) []byte { return mustEncode(tb, everything(tb)) },
	} {
		body := e(f)
		add(body)
		add(body[:len(body)/2])
	}
}

// FuzzScan shows that Scan never panics. Input that it accepts is decoded by the library without a
// panic and within the memory limit.
func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if Scan(data) != nil {
			return
		}
		limit := 32*uint64(len(data)) + 17<<20
		for _, into := range []any{new(any), new(map[string]any), new([]any), new(map[string]string), new([]int64), new(sumArgs), new(map[any]any)} {
			if used := allocated(func() { _ = Serializer{}.Unmarshal(data, into) }); used > limit {
				t.Fatalf("%x into %T: %d bytes of memory, want at most %d", data, into, used, limit)
			}
		}
	})
}

// FuzzCompact shows that each decoded envelope can be encoded, and then decodes and encodes the
// same.
func FuzzCompact(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.Clone(data)
		first, err := Compact{}.Decode(&broker.Message{ContentType: serializer.ContentCompact, Body: data})
		if !bytes.Equal(in, data) {
			t.Fatal("Decode changed the body")
		}
		if err != nil {
			return
		}
		m, err := Compact{}.Encode(first)
		if err != nil {
			t.Fatalf("%x was read and cannot be written: %v", data, err)
		}
		second, err := Compact{}.Decode(m)
		if err != nil {
			t.Fatalf("%x was read, written as %x, and cannot be read: %v", data, m.Body, err)
		}
		// not cmp.Diff of both: nested links cost it 3 to the power of their depth
		again, err := Compact{}.Encode(second)
		if err != nil || !bytes.Equal(m.Body, again.Body) {
			t.Fatalf("%x is written as %x and then as %x, %v", data, m.Body, again.Body, err)
		}
	})
}

func mustEncode(tb testing.TB, e *task.Envelope) []byte {
	tb.Helper()
	m, err := Compact{}.Encode(e)
	if err != nil {
		tb.Fatal(err)
	}
	return m.Body
}
