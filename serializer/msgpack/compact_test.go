package msgpack

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// pairs returns a body of key, value, key, value ... with values in msgpack.
func pairs(kv ...string) []byte {
	return append(rawmsgpack.AppendMapLen(nil, len(kv)/2), strings.Join(kv, "")...)
}

func compactMessage(body []byte) *broker.Message {
	return &broker.Message{ContentType: serializer.ContentCompact, Body: body}
}

func TestCompactRefuses(t *testing.T) {
	for name, body := range map[string][]byte{
		"no map":                     []byte("\x93\x01\x02\x03"),
		"a key twice":                pairs("\x02", "\xa1a", "\x02", "\xa1b"),
		"an unknown key twice":       pairs("\x50", "\xa1a", "\x50", "\xa1b"),
		"a text as key":              pairs("\xa4name", "\xa1a"),
		"a negative key":             pairs("\xff", "\xa1a"),
		"a key beyond 127":           pairs("\xcc\x80", "\xa1a"),
		"name is no text":            pairs("\x02", "\x05"),
		"name is bytes":              pairs("\x02", "\xc4\x01a"),
		"name is not UTF-8":          pairs("\x02", "\xa1\xff"),
		"name is nil":                pairs("\x02", "\xc0"),
		"args are a text":            pairs("\x03", "\xa1a"),
		"id of 15 bytes":             pairs("\x01", "\xc4\x0faaaaaaaaaaaaaaa"),
		"id with a space":            pairs("\x01", "\xa3a b"),
		"version 0":                  pairs("\x00", "\x00"),
		"version -1":                 pairs("\x00", "\xff"),
		"version is a float":         pairs("\x00", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"),
		"retries -1":                 pairs("\x0c", "\xff"),
		"crashes -2^63":              pairs("\x0d", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00"),
		"parked -1":                  pairs("\x0e", "\xff"),
		"life -1":                    pairs("\x1a", "\xff"),
		"group index -1":             pairs("\x0b", "\xff"),
		"group index 2^31":           pairs("\x0b", "\xce\x80\x00\x00\x00"),
		"an unknown content type":    pairs("\x04", "\x09"),
		"content type -1":            pairs("\x04", "\xff"),
		"a negative time limit":      pairs("\x24", "\xff"),
		"a bad queue":                pairs("\x20", "\xa2a>"),
		"ignore result is a number":  pairs("\x26", "\x01"),
		"headers are a list":         pairs("\x10", "\x90"),
		"a header twice":             pairs("\x10", "\x82\xa1a\xa1x\xa1a\xa1y"),
		"a header that is a number":  pairs("\x10", "\x81\xa1a\x01"),
		"base is a list":             pairs("\x12", "\x90"),
		"base with a key twice":      pairs("\x12", "\x82\x2b\x01\x2b\x02"),
		"a link without a name":      pairs("\x11", "\x91\x80"),
		"a link of itself":           pairs("\x11", "\x91\x82\x02\xa1a\x43\x01"),
		"a link of a later one":      pairs("\x11", "\x92\x82\x02\xa1a\x43\x02\x81\x02\xa1b"),
		"a link of no kind":          pairs("\x11", "\x91\x82\x02\xa1a\x44\x03"),
		"two chords":                 pairs("\x11", "\x92\x82\x02\xa1a\x44\x02\x82\x02\xa1b\x44\x02"),
		"a chord of a link":          pairs("\x11", "\x92\x81\x02\xa1a\x83\x02\xa1b\x43\x01\x44\x02"),
		"a link that feeds nonsense": pairs("\x11", "\x91\x82\x02\xa1a\x41\xa1x"),
		"an extension":               pairs("\x50", "\xd4\x05\x00"),
		"reply to is a number":       pairs("\x07", "\x01"),
		"origin is too long":         pairs("\x06", "\xda\x01\x00"+strings.Repeat("o", 256)),
	} {
		if e, err := (Compact{}).Decode(compactMessage(body)); !errors.Is(err, serializer.ErrMalformed) {
			t.Errorf("%s: got %+v, %v; want ErrMalformed", name, e, err)
		}
	}
	headers := rawmsgpack.AppendMapLen([]byte{keyHeaders}, 10_000)
	for i := range 10_000 {
		headers = rawmsgpack.AppendText(rawmsgpack.AppendText(headers, strings.Repeat("k", 1+i%20)+string(rune('a'+i%26))), "")
	}
	if _, err := (Compact{}).Decode(compactMessage(append([]byte{0x81}, headers...))); !errors.Is(err, serializer.ErrMalformed) {
		t.Errorf("10,000 headers: %v, want ErrMalformed", err)
	}
	large := rawmsgpack.AppendText([]byte{0x81, keyHeaders, 0x81, 0xa1, 'k'}, strings.Repeat("v", 1<<20))
	if _, err := (Compact{}).Decode(compactMessage(large)); !errors.Is(err, serializer.ErrMalformed) {
		t.Errorf("a header of 1 MiB: %v, want ErrMalformed", err)
	}
}

func TestCompactClamps(t *testing.T) {
	e, err := Compact{}.Decode(compactMessage(pairs(
		"\x0c", "\xcf\x80\x00\x00\x00\x00\x00\x00\x00", // retries 2^63
		"\x05", "\xd3\xff\xff\xfe\x00\x00\x00\x00\x00", // sent before 1970
		"\x2b", "\xce\x80\x00\x00\x00", // priority 2^31
		"\x24", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", // time limit
		"\x2d", "\xcf\x00\x00\xff\xff\xff\xff\xff\xff", // expires in the year 10889
		"\x21", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", // max retries -2^63
	)))
	if err != nil {
		t.Fatal(err)
	}
	if e.Retries != 1<<31-1 {
		t.Errorf("retries %d, want 2^31-1", e.Retries)
	}
	if !e.SentAt.Equal(time.Unix(0, 0)) {
		t.Errorf("sent at %v, want 1970", e.SentAt)
	}
	if p := e.Meta.Priority.Or(0); p != task.MaxPriority {
		t.Errorf("priority %d, want %d", p, task.MaxPriority)
	}
	if d := e.Meta.TimeLimit.Or(0); d != task.MaxTimeLimit {
		t.Errorf("time limit %v, want %v", d, task.MaxTimeLimit)
	}
	if at := e.Meta.Expires.Or(time.Time{}); at.Year() != 9998 {
		t.Errorf("expires %v, want the end of 9998", at)
	}
	if n := e.Meta.MaxRetries.Or(0); n >= 0 {
		t.Errorf("max retries %d, want a negative number, which means no limit", n)
	}
	if e, err := (Compact{}).Decode(compactMessage(pairs("\x2b", "\xff"))); err != nil || e.Meta.Priority.Or(9) != 0 {
		t.Errorf("priority -1: %+v, %v; want 0", e, err)
	}
}

// TestLongChain shows that the nesting limit of readers does not limit the length of chains.
func TestLongChain(t *testing.T) {
	e := addEnvelope(t)
	for range 500 {
		e.Then = []task.Link{{Name: "step", Then: e.Then}}
	}
	m, err := Compact{}.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Compact{}.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	length := 0
	// cmp would need 3^500 steps
	for links := got.Then; len(links) == 1 && links[0].Name == "step"; links = links[0].Then {
		length++
	}
	if length != 500 {
		t.Errorf("a chain of 500 links came back with %d", length)
	}
}

// TestArgsShareTheBody shows that Decode does not copy the arguments, and that appending to them
// does not change the message.
func TestArgsShareTheBody(t *testing.T) {
	m, err := Compact{}.Encode(addEnvelope(t))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Compact{}.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	before := string(m.Body)
	_ = append(e.Args, 0xff)
	if string(m.Body) != before {
		t.Error("appending to the arguments changed the message")
	}
	e.Args[0] ^= 0xff
	if string(m.Body) == before {
		t.Error("the arguments are a copy of the body, which costs an allocation per task")
	}
}

func TestUUIDs(t *testing.T) {
	for _, s := range []string{
		"01920f4e-7a3b-7cc1-9b0e-0123456789ab", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	} {
		u, ok := parseUUID(s)
		if !ok || formatUUID(u[:]) != s {
			t.Errorf("%s came back as %s, %v", s, formatUUID(u[:]), ok)
		}
	}
	for _, s := range []string{
		"", "01920F4E-7a3b-7cc1-9b0e-0123456789ab", "01920f4e-7a3b-7cc1-9b0e-0123456789a", "01920f4e-7a3b-7cc1-9b0e-0123456789abc",
		"01920f4e_7a3b-7cc1-9b0e-0123456789ab", "0192-f4e-7a3b-7cc1-9b0e-0123456789ab", "g1920f4e-7a3b-7cc1-9b0e-0123456789ab",
		"{01920f4e-7a3b-7cc1-9b0e-0123456789}",
	} {
		if _, ok := parseUUID(s); ok {
			t.Errorf("%q is taken for a UUID in its usual form, and would come back changed", s)
		}
	}
}
