package serializer

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// The golden files are messages of version 1. They never change; see the golden files of Compact.
var writeGolden = flag.Bool("write-golden", false, "write golden files that do not exist yet")

func diffEnvelopes(a, b *task.Envelope) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.AllowUnexported(
		task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{}))
}

// everything returns a task with all fields set.
func everything() *task.Envelope {
	at := time.UnixMilli(1760000000123).UTC()
	return &task.Envelope{
		Version: 1, ID: "01920f4e-7a3b-7cc1-9b0e-0123456789ab", Root: "order-17", Parent: "parent", Group: "group", GroupIndex: 3,
		Name: "email.send", ContentType: ContentJSON, Args: []byte(`{"to": "a@example.org", "n": 1.50}`),
		Retries: 1, Crashes: 2, Parked: 3, SentAt: at, Origin: "node-1", ReplyTo: "node-2", Correlation: "c-1 é <b>",
		Headers: map[string]string{"tenant": "a", "trace": "b"},
		Meta: task.Metadata{
			Queue: task.Set("q.high"), MaxRetries: task.Set(-1), RetryDelay: task.Set(1500 * time.Millisecond), RateLimit: task.Set("10/s"),
			TimeLimit: task.Set(time.Minute), SoftTimeLimit: task.Set(time.Duration(0)), IgnoreResult: task.Set(true), Idempotent: task.Set(false),
			Serializer: task.Set(ContentJSON), ResultStore: task.Set("archive"), ResultTTL: task.Set(time.Hour),
			Priority: task.Set(0), NotBefore: task.Set(at.Add(time.Second)), Expires: task.Set(time.Time{}),
		},
		Base: &task.Metadata{MaxRetries: task.Set(5)},
		Then: []task.Link{
			{ID: "next-1", Queue: "q", Name: "next", Then: []task.Link{{ID: "last-1", Queue: "q", Name: "last"}}},
			{Name: "beside", Feed: task.FeedInto, Field: "sum", ContentType: ContentMsgpack, Args: []byte{0x80}, Meta: task.Metadata{Queue: task.Set("m"), TimeLimit: task.Set(time.Second)}},
		},
		Else:  []task.Link{{Name: "on-error", Feed: task.FeedNone}},
		Chord: &task.Link{Name: "gather", Feed: task.FeedPrepend, ContentType: ContentJSON, Args: []byte(`[]`)},
	}
}

func TestGoldenJSON(t *testing.T) {
	bytesTask := &task.Envelope{Version: 1, ID: "x", Name: "resize", ContentType: ContentMsgpack, Args: []byte("\x92\x01\x02")}
	requeued := &task.Envelope{Version: 1, ID: "x", Name: "email.send", ContentType: ContentJSON, Args: []byte(`{"n":1}`), Retries: 1, Life: 2}
	steps := &task.Envelope{Version: 1, ID: "x", Name: "email.send", ContentType: ContentJSON, Args: []byte(`{"n":1}`)}
	steps.Then = []task.Link{{
		Name: "next", Queue: "q", Headers: map[string]string{"import": "42", "empty": ""}, Without: []string{"only-first", "é"}, Correlation: task.Set("c-2"),
		Then: []task.Link{{Name: "last", Queue: "q", Without: []string{"import"}, Correlation: task.Set("")}},
	}}
	for name, e := range map[string]*task.Envelope{"everything": everything(), "bytes": bytesTask, "requeued": requeued, "steps": steps} {
		m, err := JSONFormat{}.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		want := golden(t, "json-v1-"+name+".json", m.Body)
		if !bytes.Equal(m.Body, want) {
			t.Errorf("%s is written as\n%s\nthe golden file has\n%s", name, m.Body, want)
		}
		checkRead(t, JSONFormat{}, &broker.Message{ContentType: ContentJSON, Body: want}, e)

		m, err = RawFormat{}.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		header, ok := m.Headers[EnvelopeHeader].([]byte)
		if !ok || len(m.Headers) != 1 {
			t.Fatalf("the headers are %v, want only %s as []byte", m.Headers, EnvelopeHeader)
		}
		if !bytes.Equal(m.Body, e.Args) {
			t.Errorf("the raw body is %q, want the arguments %q", m.Body, e.Args)
		}
		want = golden(t, "raw-v1-"+name+".json", header)
		if !bytes.Equal(header, want) {
			t.Errorf("%s has the header\n%s\nthe golden file has\n%s", name, header, want)
		}
		for _, value := range []any{want, string(want)} {
			checkRead(t, RawFormat{}, &broker.Message{ContentType: ContentRaw, Body: e.Args, Headers: map[string]any{EnvelopeHeader: value}}, e)
		}
	}
}

func checkRead(t *testing.T, f Format, m *broker.Message, want *task.Envelope) {
	t.Helper()
	got, err := f.Decode(m)
	if err != nil {
		t.Errorf("Decode: %v", err)
		return
	}
	if d := diffEnvelopes(want, got); d != "" {
		t.Errorf("it is read as something else (-want +got):\n%s", d)
	}
}

// TestGoldenJSONOfNewerWriter shows that unknown members are kept and sent with a retry.
func TestGoldenJSONOfNewerWriter(t *testing.T) {
	newer := golden(t, "json-v2-newer.json", []byte(`{"version":2,"id":"n1","task":"email.send","args":[1],"compression":"zstd",`+
		`"shard":{"of": 7, "name":"\u00e9"},"deadline":null,"max_retries":2}`))
	for name, c := range map[string]struct {
		f Format
		m *broker.Message
	}{
		"JSON": {JSONFormat{}, &broker.Message{Body: newer}},
		"raw": {RawFormat{}, &broker.Message{Body: []byte("[1]"), Headers: map[string]any{
			EnvelopeHeader: bytes.Replace(newer, []byte(`"args":[1],`), nil, 1),
		}}},
	} {
		e, err := c.f.Decode(c.m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := `{"compression":"zstd","deadline":null,"shard":{"of": 7, "name":"\u00e9"}}`
		if string(e.Unknown) != want || e.Version != 2 || e.Meta.MaxRetries.Or(0) != 2 || string(e.Args) != "[1]" {
			t.Errorf("%s: read as %+v, Unknown %s; want Unknown %s", name, e, e.Unknown, want)
		}
		e.Retries++
		retry, err := c.f.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.f.Decode(retry)
		if err != nil || string(again.Unknown) != want || again.Version != 2 || again.Retries != 1 {
			t.Errorf("%s: after a retry: %+v, %v; want Unknown %s", name, again, err, want)
		}
	}
	e := everything()
	e.Unknown = []byte{0x81, 60, 0xa4, 'z', 's', 't', 'd'} // kept by Compact
	m, err := JSONFormat{}.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	e.Unknown = nil
	checkRead(t, JSONFormat{}, m, e)
}

func golden(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if _, err := os.Stat(path); os.IsNotExist(err) && *writeGolden {
		if err := os.WriteFile(path, append(now, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(data, []byte("\n"))
}

// TestWrittenByHand decodes messages that a person or another program writes.
func TestWrittenByHand(t *testing.T) {
	at := time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)
	for body, want := range map[string]*task.Envelope{
		`{"task":"email.send","args":{"to":"a@example.org"}}`: {Name: "email.send", ContentType: ContentJSON, Args: []byte(`{"to":"a@example.org"}`)},
		"\n { \"args\" : [ 1 , 2 ] , \"task\" : \"add\" } \n": {Name: "add", ContentType: ContentJSON, Args: []byte(`[ 1 , 2 ]`)},
		`{"task":"ping"}`:             {Name: "ping", ContentType: ContentJSON, Args: []byte("null")},
		`{"task":"ping","args":null}`: {Name: "ping", ContentType: ContentJSON, Args: []byte("null")},
		`{"task":""}`:                 {ContentType: ContentJSON, Args: []byte("null")},
		`{"task":"a","id":"own","max_retries":3.0,"retry_delay_ms":2e3,"priority":-5,"ignore_result":null}`: {
			ID: "own", Name: "a", ContentType: ContentJSON, Args: []byte("null"),
			Meta: task.Metadata{MaxRetries: task.Set(3), RetryDelay: task.Set(2 * time.Second), Priority: task.Set(0)},
		},
		`{"task":"a","expires":"2026-01-31T12:00:00+01:00","not_before":1769857200000,"sent_at_ms":"2026-01-31T11:00:00Z"}`: {
			Name: "a", ContentType: ContentJSON, Args: []byte("null"), SentAt: at,
			Meta: task.Metadata{Expires: task.Set(at), NotBefore: task.Set(at)},
		},
		`{"task":"a","expires":"","time_limit_ms":1e300,"retries":9e18}`: {
			Name: "a", ContentType: ContentJSON, Args: []byte("null"), Retries: 1<<31 - 1,
			Meta: task.Metadata{Expires: task.Set(time.Time{}), TimeLimit: task.Set(task.MaxTimeLimit)},
		},
		`{"task":"a","expires":"1900-01-01T00:00:00Z","not_before":"9999-01-01T00:00:00Z"}`: {
			Name: "a", ContentType: ContentJSON, Args: []byte("null"),
			Meta: task.Metadata{Expires: task.Set(time.Unix(0, 0).UTC()), NotBefore: task.Set(FromMilli(1 << 60))},
		},
		`{"task":"a","args_base64":"AP8=","content_type":"image/png"}`: {Name: "a", ContentType: "image/png", Args: []byte{0, 0xff}},
		`{"task":"a","args":1,"content_type":"application/json; charset=utf-8"}`: {
			Name: "a", ContentType: "application/json; charset=utf-8", Args: []byte("1"),
		},
		`{"task":"a","then":[{"task":"b","queue":"q","args":[1]}],"else":[],"chord":{"task":"c"}}`: {
			Name: "a", ContentType: ContentJSON, Args: []byte("null"),
			Then:  []task.Link{{Name: "b", Queue: "q", ContentType: ContentJSON, Args: []byte("[1]")}},
			Chord: &task.Link{Name: "c"},
		},
	} {
		want.Version = 1
		if want.ID == "" {
			want.ID = "from-the-broker"
		}
		for _, contentType := range []string{"", "text/plain", ContentJSON, "application/json; charset=utf-8", "Text/Plain;charset=utf-8"} {
			e, err := JSONFormat{}.Decode(&broker.Message{ID: "from-the-broker", ContentType: contentType, Body: []byte(body)})
			if err != nil {
				t.Errorf("%s as %q: %v", body, contentType, err)
				continue
			}
			if d := diffEnvelopes(want, e); d != "" {
				t.Errorf("%s as %q (-want +got):\n%s", body, contentType, d)
			}
		}
	}
}

func TestJSONFormatRefuses(t *testing.T) {
	for _, body := range []string{
		`{"task":"a"`, `{"task":"a"}x`, `{"task":"a","id":"1","id":"2"}`, `{"task":"a","args":{"x":1,"x":1}}`, `{"task":"a","args":NaN}`,
		`{"task":"a","args":1e999999999}`, `{"task":"a","args":"\ud800"}`, "{\"task\":\"\xff\"}",
		`{"task":1}`, `{"task":["a"]}`, `{"task":"../../bin/sh"}`, `{"task":"a b"}`, `{"task":"a","id":"a b"}`, `{"task":"a","id":7}`,
		`{"task":"a","root":"ä"}`, `{"task":"a","queue":"x y"}`, `{"task":"a","retries":-1}`, `{"task":"a","retries":1.5}`, `{"task":"a","retries":"1"}`,
		`{"task":"a","group_index":2147483648}`, `{"task":"a","group_index":-1}`, `{"task":"a","version":0}`, `{"task":"a","version":-3}`,
		`{"task":"a","time_limit_ms":-1}`, `{"task":"a","expires":"tomorrow"}`, `{"task":"a","expires":true}`, `{"task":"a","idempotent":"yes"}`,
		`{"task":"a","headers":{"a":1}}`, `{"task":"a","headers":["a"]}`, `{"task":"a","base":[]}`, `{"task":"a","base":{"priority":"x"}}`,
		`{"task":"a","args":1,"args_base64":"AA=="}`, `{"task":"a","args_base64":"?"}`, `{"task":"a","args":1,"content_type":"application/msgpack"}`,
		`{"task":"a","then":{"task":"b"}}`, `{"task":"a","then":[null]}`, `{"task":"a","then":[{}]}`, `{"task":"a","then":[{"task":"b","then":[{"task":"/"}]}]}`,
		`{"task":"a","then":[{"task":"b","feed":"x"}]}`, `{"task":"a","chord":[]}`, `{"task":"a","then":[{"task":"b","args":1,"args_base64":""}]}`,
		`{"task":"a","then":[` + strings.Repeat(`{"task":"b"},`, MaxLinks) + `{"task":"b"}]}`,
	} {
		e, err := JSONFormat{}.Decode(&broker.Message{Body: []byte(body)})
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%.80s: got %+v, %v; want ErrMalformed", body, e, err)
		}
	}
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, `"h%d":"",`, i)
	}
	for _, headers := range []string{many.String() + `"z":""`, `"k":"` + strings.Repeat("v", 1<<20) + `"`} {
		body := `{"task":"a","headers":{` + headers + `}}`
		if _, err := (JSONFormat{}).Decode(&broker.Message{Body: []byte(body)}); !errors.Is(err, ErrMalformed) {
			t.Errorf("headers of %d bytes: %v, want ErrMalformed", len(headers), err)
		}
	}
}

// TestJSONFormatLeavesToOthers shows that JSON without a task is not read by JSONFormat.
func TestJSONFormatLeavesToOthers(t *testing.T) {
	for _, m := range []*broker.Message{
		{Body: []byte(`{"to":"a"}`)},
		{ContentType: ContentJSON, Body: []byte(`{"to":"a"}`)},
		{ContentType: ContentJSON, Body: []byte(`[1]`)},
		{Body: []byte(`hello`)},
		{Body: []byte(``)},
		{ContentType: ContentMsgpack, Body: []byte(`{"task":"a"}`)},
		{ContentType: ContentJSON, Body: []byte(`{"Task":"a"}`)},
	} {
		if e, err := (JSONFormat{}).Decode(m); !errors.Is(err, ErrNotMine) {
			t.Errorf("%q %s: got %+v, %v; want ErrNotMine", m.ContentType, m.Body, e, err)
		}
		m.ID, m.Properties = "m1", map[string]string{"correlation-id": "corr", "reply-to": "amq.rabbitmq.trace", "type": "x"}
		e, err := RawFormat{}.Decode(m)
		if err != nil {
			t.Errorf("raw %s: %v", m.Body, err)
			continue
		}
		contentType := m.ContentType
		if contentType == "" {
			contentType = ContentRaw
		}
		want := &task.Envelope{Version: 1, ID: "m1", ContentType: contentType, Args: m.Body, Correlation: "corr"}
		if d := diffEnvelopes(want, e); d != "" {
			t.Errorf("raw %s (-want +got):\n%s", m.Body, d)
		}
	}
}

func TestRawFormatRefuses(t *testing.T) {
	for name, header := range map[string]any{
		"no JSON":         []byte("\xdd\xff\xff\xff\xff"),
		"empty":           []byte{},
		"no object":       "[1]",
		"null":            []byte("null"),
		"a number":        int64(1),
		"args in it":      `{"task":"a","args":1}`,
		"base64 in it":    `{"task":"a","args_base64":"AA=="}`,
		"a bad name":      `{"task":"a b"}`,
		"a key twice":     `{"task":"a","task":"b"}`,
		"nested too deep": strings.Repeat(`{"a":`, 100_000),
	} {
		m := &broker.Message{Body: []byte("x"), Headers: map[string]any{EnvelopeHeader: header}}
		if e, err := (RawFormat{}).Decode(m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v; want ErrMalformed", name, e, err)
		}
	}
	if _, err := (RawFormat{}).Decode(&broker.Message{ContentType: ContentCompact, Body: []byte{0x80}}); !errors.Is(err, ErrNotMine) {
		t.Errorf("a Compact message: %v, want ErrNotMine: its body is no arguments", err)
	}
	if _, err := (RawFormat{}).Decode(&broker.Message{ID: "a b", Body: []byte{0x80}}); !errors.Is(err, ErrMalformed) {
		t.Errorf("a bad message id: %v, want ErrMalformed", err)
	}
}

// TestDeepArguments shows that arguments nested too deeply for the envelope's object are written as
// base64.
func TestDeepArguments(t *testing.T) {
	for _, depth := range []int{MaxJSONDepth - 1, MaxJSONDepth} {
		e := everything()
		e.Args = []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		e.Then[0].Then[0].ContentType, e.Then[0].Then[0].Args = ContentJSON, e.Args
		e.Chord.Args = e.Args
		m, err := JSONFormat{}.Encode(e)
		if err != nil {
			t.Fatalf("arguments nested %d deep: %v", depth, err)
		}
		checkRead(t, JSONFormat{}, m, e)
	}
	e := everything()
	for range 100 {
		e.Then = []task.Link{{Name: "step", Then: e.Then}}
	}
	if _, err := (JSONFormat{}).Encode(e); !errors.Is(err, ErrValue) {
		t.Errorf("100 links inside each other gave %v, want ErrValue: no reader would take them", err)
	}
}

func seeds(f *testing.F) {
	for _, s := range []string{
		`{"task":"email.send","args":{"to":"a"}}`, `{"task":"a","id":"1","id":"2"}`, `{"task":"a","args":1e999999999}`, `{"task":"a","args":"\ud800"}`,
		"{\"task\":\"\xff\"}", `{"task":"a","args":NaN}`, strings.Repeat("[", 1000), strings.Repeat(`{"a":`, 1000), "{", "", "\xdd\xff\xff\xff\xff",
		`{"task":"a","retries":-1}`, `{"task":"a","retries":9223372036854775808,"priority":2147483648,"expires":"9999-01-01T00:00:00Z","not_before":-5}`,
		`{"task":"a","new":[1, 2],"then":[{"task":"b","args_base64":"AA==","then":[{"task":"c"}]}],"base":{"priority":1}}`,
		`{"task":"a","root":"x","content_type":"application/json","headers":{"":""}}`, "\x00\xff",
	} {
		f.Add([]byte(s))
	}
	m, err := JSONFormat{}.Encode(everything())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Body)
	f.Add(m.Body[:len(m.Body)/2])
}

// FuzzJSONFormat shows that each decoded envelope can be encoded, and then decodes and encodes the
// same.
func FuzzJSONFormat(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkStable(t, JSONFormat{}, &broker.Message{Body: data})
	})
}

// FuzzRawFormat does the same for RawFormat, with the input as header and as body.
func FuzzRawFormat(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkStable(t, RawFormat{}, &broker.Message{Body: data})
		checkStable(t, RawFormat{}, &broker.Message{Body: data, Headers: map[string]any{EnvelopeHeader: data}})
	})
}

func checkStable(t *testing.T, f Format, m *broker.Message) {
	t.Helper()
	first, err := f.Decode(m)
	if err != nil {
		return
	}
	out, err := f.Encode(first)
	if err != nil {
		t.Fatalf("%q was read and cannot be written: %v", m.Body, err)
	}
	second, err := f.Decode(out)
	if err != nil {
		t.Fatalf("%q was read, written as %q %q, and cannot be read: %v", m.Body, out.Body, out.Headers, err)
	}
	// not cmp.Diff of both: nested links cost it 3 to the power of their depth
	again, err := f.Encode(second)
	if err != nil {
		t.Fatal(err)
	}
	header, _ := out.Headers[EnvelopeHeader].([]byte)
	headerAgain, _ := again.Headers[EnvelopeHeader].([]byte)
	if !bytes.Equal(out.Body, again.Body) || !bytes.Equal(header, headerAgain) || out.ID != again.ID {
		t.Fatalf("%q is written as %q %q and then as %q %q", m.Body, out.Body, header, again.Body, headerAgain)
	}
}
