package serializertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// testOthers expects that f does not read messages of other programs: Decode returns ErrNotMine, or
// an envelope without a name whose arguments are the body.
func testOthers(t *testing.T, f serializer.Format) {
	for _, m := range []*broker.Message{
		{ID: "x", ContentType: "application/x-serializertest", Body: []byte("anything")},
		{ID: "x", ContentType: "application/x-serializertest", Body: []byte(`{"task":"a"}`)},
		{ID: "x", ContentType: "image/png", Body: []byte("\x89PNG")},
		{ID: "x", Body: []byte("plain words")},
		{ID: "x", Body: nil},
	} {
		e, err := f.Decode(m)
		switch {
		case errors.Is(err, serializer.ErrNotMine):
		case err != nil:
			t.Errorf("a %q message %q gave %v, want ErrNotMine", m.ContentType, m.Body, err)
		case e.Name != "" || !bytes.Equal(e.Args, m.Body):
			t.Errorf("a %q message %q was read as task %q with args %q; want ErrNotMine or raw work", m.ContentType, m.Body, e.Name, e.Args)
		}
	}
}

// damaged calls f with each message that differs from m at one position of its body or of a byte
// header. The text what names the position. change gets a copy of the bytes and the position, and
// returns the changed bytes. With headers it does not change the body.
func damaged(m *broker.Message, change func(b []byte, at int) []byte, f func(what string, m *broker.Message)) {
	for at := range m.Body {
		if len(m.Headers) > 0 {
			break // the body holds only the arguments, which may be any bytes
		}
		c := clone(m)
		c.Body = change(c.Body, at)
		f(fmt.Sprintf("body at %d", at), c)
	}
	for k, v := range m.Headers {
		b, ok := v.([]byte)
		for at := range b {
			if !ok {
				break
			}
			c := clone(m)
			c.Headers[k] = change(bytes.Clone(b), at)
			f(fmt.Sprintf("header %s at %d", k, at), c)
		}
	}
}

// testTruncated expects ErrMalformed or ErrNotMine for a message that is cut at any position.
func testTruncated(t *testing.T, f serializer.Format) {
	for _, e := range []*task.Envelope{example(), full()} {
		m := encode(t, f, e)
		damaged(m, func(b []byte, at int) []byte { return b[:at] }, func(what string, m *broker.Message) {
			_, err := f.Decode(m)
			if !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrNotMine) {
				t.Errorf("cut %s: gave %v, want ErrMalformed or ErrNotMine", what, err)
			}
		})
	}
}

// testFlipped flips bits at each position of a message. It expects that Decode returns
// ErrMalformed, ErrNotMine, or an envelope that can be encoded.
func testFlipped(t *testing.T, f serializer.Format) {
	// All bits of a small message; two bits of each byte of a large one.
	for e, bits := range map[*task.Envelope]int{example(): 8, full(): 2} {
		m := encode(t, f, e)
		for i := range bits {
			bit := 4*i + i/2 // with the position modulo 8, eight consecutive bytes cover all bits
			flip := func(b []byte, at int) []byte { b[at] ^= 1 << ((at + bit) % 8); return b }
			damaged(m, flip, func(what string, m *broker.Message) {
				got, err := f.Decode(m)
				if err != nil {
					if !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrNotMine) {
						t.Errorf("bit (position + %d) %% 8 flipped, %s: gave %v, want ErrMalformed or ErrNotMine", bit, what, err)
					}
					return
				}
				if _, err := f.Encode(got); err != nil {
					t.Errorf("bit (position + %d) %% 8 flipped, %s: it was read, but cannot be written again: %v", bit, what, err)
				}
			})
		}
	}
}

// testHostile expects that Decode refuses each input of HostileInputs with little memory, and that
// the same inputs as arguments arrive unchanged.
func testHostile(t *testing.T, f serializer.Format) {
	for _, h := range HostileInputs() {
		inHeader := make(map[string]any)
		for k := range encode(t, f, example()).Headers {
			inHeader[k] = h.Data
		}
		for place, m := range map[string]*broker.Message{
			"body":   {ID: "x", ContentType: f.ContentType(), Body: h.Data},
			"header": {ID: "x", ContentType: f.ContentType(), Headers: inHeader},
		} {
			if place == "header" && len(inHeader) == 0 {
				continue
			}
			var e *task.Envelope
			var err error
			bytesUsed := allocated(func() { e, err = f.Decode(m) })
			if limit := uint64(1<<20 + 32*len(h.Data)); bytesUsed > limit {
				t.Errorf("%s as %s: %d bytes of memory for %d of input, want at most %d", h.Name, place, bytesUsed, len(h.Data), limit)
			}
			switch {
			case err == nil && (e.Name != "" || !bytes.Equal(e.Args, m.Body)):
				t.Errorf("%s as %s: was read as task %q", h.Name, place, e.Name)
			case err != nil && !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrNotMine):
				t.Errorf("%s as %s: gave %v, want ErrMalformed or ErrNotMine", h.Name, place, err)
			}
		}
		// As arguments they must arrive unchanged: the serializer refuses them when the handler is known.
		e := example()
		e.ContentType, e.Args = serializer.ContentMsgpack, h.Data
		got := decode(t, f, encode(t, f, e))
		if got.ContentType != e.ContentType || !bytes.Equal(got.Args, e.Args) {
			t.Errorf("%s as arguments: they changed on their way", h.Name)
		}
	}
}

// testBadNames expects that Encode refuses bad names and ids in any part of an envelope, with
// ErrValue and the error of package task.
func testBadNames(t *testing.T, f serializer.Format) {
	for _, name := range []string{
		"../../bin/sh", "a b", "%2e", "a\x00b", "\u202egnp", ".hidden", strings.Repeat("n", 10<<10), "-x", "käse",
	} {
		for what, set := range map[string]func(e *task.Envelope){
			"task":        func(e *task.Envelope) { e.Name = name },
			"link":        func(e *task.Envelope) { e.Then = []task.Link{{Name: name}} },
			"queue":       func(e *task.Envelope) { e.Meta.Queue = task.Set(name) },
			"link queue":  func(e *task.Envelope) { e.Else = []task.Link{{Name: "n", Queue: name}} },
			"base's":      func(e *task.Envelope) { e.Base = &task.Metadata{Queue: task.Set(name)} },
			"inner link":  func(e *task.Envelope) { e.Then = []task.Link{{Name: "n", Else: []task.Link{{Name: name}}}} },
			"chord's own": func(e *task.Envelope) { e.Chord = &task.Link{Name: name} },
		} {
			e := example()
			set(e)
			_, err := f.Encode(e)
			if !errors.Is(err, serializer.ErrValue) || !errors.Is(err, task.ErrBadName) {
				t.Errorf("%s name %.40q: Encode gave %v, want ErrValue and task.ErrBadName", what, name, err)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("%s name of %d bytes: the error's text has %d bytes", what, len(name), len(err.Error()))
			}
		}
	}
	for _, id := range []task.ID{"a b", "a\nb", "\x7f", task.ID(strings.Repeat("i", 129)), "ä"} {
		for what, set := range map[string]func(e *task.Envelope){
			"id":     func(e *task.Envelope) { e.ID = id },
			"root":   func(e *task.Envelope) { e.Root = id },
			"parent": func(e *task.Envelope) { e.Parent = id },
			"group":  func(e *task.Envelope) { e.Group = id },
			"link":   func(e *task.Envelope) { e.Then = []task.Link{{Name: "n", ID: id}} },
		} {
			e := example()
			set(e)
			if _, err := f.Encode(e); !errors.Is(err, serializer.ErrValue) || !errors.Is(err, task.ErrBadID) {
				t.Errorf("%s %q: Encode gave %v, want ErrValue and task.ErrBadID", what, id, err)
			}
		}
	}
}

// testForgedName replaces the name in an encoded message by a bad one. It expects ErrMalformed and
// task.ErrBadName from Decode. It skips formats that do not write names in plain text.
func testForgedName(t *testing.T, f serializer.Format) {
	e := example()
	m := clone(encode(t, f, e))
	good, forged := []byte(e.Name), []byte("../../bin/shxx")
	if len(good) != len(forged) {
		t.Fatalf("the suite itself: %q and %q must be equally long", good, forged)
	}
	found := bytes.Contains(m.Body, good)
	m.Body = bytes.ReplaceAll(m.Body, good, forged)
	for k, v := range m.Headers {
		if b, ok := v.([]byte); ok {
			found = found || bytes.Contains(b, good)
			m.Headers[k] = bytes.ReplaceAll(b, good, forged)
		}
	}
	if !found {
		t.Skip("this format does not write names in plain text")
	}
	if _, err := f.Decode(m); !errors.Is(err, serializer.ErrMalformed) || !errors.Is(err, task.ErrBadName) {
		t.Errorf("Decode gave %v, want ErrMalformed and task.ErrBadName", err)
	}
}

// testTooMuch expects that envelopes at each limit survive Encode and Decode, and that Encode
// refuses those beyond it with ErrValue.
func testTooMuch(t *testing.T, f serializer.Format) {
	headers := func(n, size int) map[string]string {
		h := make(map[string]string, n)
		for i := range n {
			h[fmt.Sprintf("%05d", i)] = strings.Repeat("v", size)
		}
		return h
	}
	chain := func(n int) []task.Link {
		return slices.Repeat([]task.Link{{Name: "n"}}, n)
	}
	for _, c := range []struct {
		name string
		set  func(e *task.Envelope)
		ok   bool
	}{
		{"1,000 headers", func(e *task.Envelope) { e.Headers = headers(1000, 1) }, true},
		{"1,001 headers", func(e *task.Envelope) { e.Headers = headers(1001, 1) }, false},
		{"64 KiB of headers", func(e *task.Envelope) { e.Headers = headers(1, 64<<10-5) }, true},
		{"more than 64 KiB of headers", func(e *task.Envelope) { e.Headers = headers(1, 64<<10-4) }, false},
		{"1,000 links", func(e *task.Envelope) { e.Then = chain(1000) }, true},
		{"1,001 links", func(e *task.Envelope) { e.Then, e.Else = chain(1000), chain(1) }, false},
		{"retries -1", func(e *task.Envelope) { e.Retries = -1 }, false},
		{"crashes -1", func(e *task.Envelope) { e.Crashes = -1 }, false},
		{"parked -1", func(e *task.Envelope) { e.Parked = -1 }, false},
		{"life -1", func(e *task.Envelope) { e.Life = -1 }, false},
		{"group index -1", func(e *task.Envelope) { e.GroupIndex = -1 }, false},
		{"version -1", func(e *task.Envelope) { e.Version = -1 }, false},
		{"a negative time limit", func(e *task.Envelope) { e.Meta.TimeLimit = task.Set(-time.Second) }, false},
		{"text that is not UTF-8", func(e *task.Envelope) { e.Correlation = "\xff" }, false},
		{"a header that is not UTF-8", func(e *task.Envelope) { e.Headers = map[string]string{"a": "\xff"} }, false},
		{"1,000 headers of a link", func(e *task.Envelope) { e.Then = []task.Link{{Name: "n", Headers: headers(1000, 1)}} }, true},
		{"1,001 headers of a link", func(e *task.Envelope) { e.Then = []task.Link{{Name: "n", Headers: headers(1001, 1)}} }, false},
		{"1,001 headers to leave out", func(e *task.Envelope) { e.Then = []task.Link{{Name: "n", Without: slices.Repeat([]string{"k"}, 1001)}} }, false},
		{"an unknown feed", func(e *task.Envelope) { e.Then = []task.Link{{Name: "n", Feed: "upside-down"}} }, false},
	} {
		e := example()
		c.set(e)
		if c.ok {
			roundTrip(t, f, e)
			continue
		}
		if _, err := f.Encode(e); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("%s: Encode gave %v, want ErrValue", c.name, err)
		}
	}
}
