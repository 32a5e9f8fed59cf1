package events_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
	"pgregory.net/rapid"
)

// full returns an event of a type with every field set, also fields of other types.
func full(typ string) events.Event {
	return events.Event{
		Type: typ, TaskID: "0199-a", NodeID: "host-1-ab", Time: time.Date(2026, 11, 20, 17, 4, 5, 678_901_234, time.FixedZone("", 3600)),
		Name: "email.send", Args: `["a",1]`, Retries: 2, Queue: "mail", Exchange: "swarmiji", RoutingKey: "mail.3",
		PID: 4711, Runtime: 1500 * time.Microsecond, Pool: 2*time.Second + time.Nanosecond, Result: `"ok"`,
		Exception: "no \"such\" host\n", Stack: "main.go:1\n\tmain.go:2", Retry: true,
		Fields: map[string]any{"tenant": "ä", "n": 7, "name": "not this one"},
	}
}

var types = []string{
	events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded, events.TaskFailed, events.TaskRevoked, "worker-online",
}

// Promises: S35.
func TestWireFormat(t *testing.T) {
	var b strings.Builder
	for _, typ := range types {
		data, err := events.Encode([]events.Event{full(typ)})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
		b.WriteByte('\n')
	}
	golden(t, "testdata/wire.golden", b.String())
}

// golden compares got with the file of a released version. With UPDATE_GOLDEN set it writes the
// file instead.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the wire format changed; listeners of other versions and languages rely on it (-want +got):\n%s", diff)
	}
}

func TestNamesOfEachType(t *testing.T) {
	common := []string{"type", "task-id", "node-id", "timestamp", "tenant", "n"}
	own := map[string][]string{
		events.TaskSent:      {"name", "args", "retries", "queue", "exchange", "routing_key"},
		events.TaskReceived:  {"name", "args", "retries", "queue"},
		events.TaskStarted:   {"pid"},
		events.TaskSucceeded: {"runtime-ms", "pool-ms", "result"},
		events.TaskFailed:    {"runtime-ms", "pool-ms", "exception", "stack-trace", "retry"},
		events.TaskRevoked:   {},
		"worker-online":      {},
	}
	for _, typ := range types {
		data, err := events.Encode([]events.Event{full(typ)})
		if err != nil {
			t.Fatal(err)
		}
		var got []map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("encoding/json cannot read %s: %v", data, err)
		}
		want := slices.Sorted(slices.Values(append(slices.Clone(common), own[typ]...)))
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got[0]))); diff != "" {
			t.Errorf("names of %s (-want +got):\n%s", typ, diff)
		}
		if ts := got[0]["timestamp"]; ts != float64(full("x").Time.UnixMilli()) {
			t.Errorf("timestamp of %s is %v, want whole milliseconds since 1970", typ, ts)
		}
	}
}

// text draws texts that are long, invalid UTF-8, or need escapes.
func text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringN(0, 6000, 6000),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 3000), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(900, 1100), func(n int) string { return strings.Repeat("é", n/2) + strings.Repeat("\xff\"", n) }),
	)
}

func anyValue() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just(any(nil)), rapid.Just(any(true)),
		rapid.Map(text(), func(s string) any { return s }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Int(), func(n int) any { return time.Duration(n) }),
		rapid.Just(any(math.NaN())), rapid.Just(any(make(chan int))), rapid.Just(any([]string{"a", "b"})),
		rapid.Just(any(time.Unix(0, 0).UTC())),
	)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(leaf, 0, 5), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.String(), leaf, 0, 5), func(m map[string]any) any { return m }),
	)
}

func anyWorker() *rapid.Generator[*events.Worker] {
	return rapid.Custom(func(t *rapid.T) *events.Worker {
		return &events.Worker{
			Hostname: text().Draw(t, "host"), Role: text().Draw(t, "role"), Freq: time.Duration(rapid.Int64().Draw(t, "freq")),
			Ident: text().Draw(t, "ident"), Version: text().Draw(t, "version"), System: text().Draw(t, "system"),
			Active: rapid.Int().Draw(t, "active"), Processed: rapid.Int64().Draw(t, "processed"),
			Load:   rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1), rapid.Just(math.NaN())).Draw(t, "load"),
			Queues: rapid.SliceOfN(text(), 0, 70).Draw(t, "queues"),
			Mem:    rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1), rapid.Just(math.Inf(1))).Draw(t, "mem"), Observer: text().Draw(t, "observer"),
		}
	})
}

func anyEvent() *rapid.Generator[events.Event] {
	id := rapid.StringMatching(`[!-~]{1,128}`)
	return rapid.Custom(func(t *rapid.T) events.Event {
		return events.Event{
			Type:      rapid.OneOf(rapid.SampledFrom(append(events.WorkerTypes(), types...)), rapid.StringMatching(`[!-~]{1,64}`)).Draw(t, "type"),
			TaskID:    task.ID(rapid.OneOf(rapid.Just(""), id).Draw(t, "id")),
			NodeID:    text().Draw(t, "node"),
			Time:      time.UnixMicro(rapid.Int64Range(-1e18, 1e18).Draw(t, "time")),
			Name:      text().Draw(t, "name"),
			Args:      text().Draw(t, "args"),
			Retries:   rapid.Int().Draw(t, "retries"),
			Queue:     text().Draw(t, "queue"),
			Exchange:  text().Draw(t, "exchange"),
			PID:       rapid.Int().Draw(t, "pid"),
			Runtime:   time.Duration(rapid.Int64().Draw(t, "runtime")),
			Pool:      time.Duration(rapid.Int64().Draw(t, "pool")),
			Result:    text().Draw(t, "result"),
			Exception: text().Draw(t, "exception"),
			Stack:     text().Draw(t, "stack"),
			Retry:     rapid.Bool().Draw(t, "retry"),
			Worker:    rapid.OneOf(rapid.Just((*events.Worker)(nil)), anyWorker()).Draw(t, "worker"),
			Fields:    rapid.MapOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"pid", "type", "retry", "load", "freq"})), anyValue(), 0, 6).Draw(t, "fields"),
		}
	})
}

func TestDecodeOfEncodeIsNormalize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := rapid.SliceOfN(anyEvent(), 1, 4).Draw(t, "events")
		data, err := events.Encode(es)
		if err != nil {
			t.Fatalf("Encode: %v", err)
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("not JSON in UTF-8: %q", data)
		}
		got, err := events.Decode(data)
		if err != nil {
			t.Fatalf("Decode of %q: %v", data, err)
		}
		var want []events.Event
		for _, e := range es {
			n := e
			err := events.Normalize(&n)
			if err != nil {
				t.Fatalf("Normalize: %v", err)
			}
			want = append(want, n)
			again := n
			err = events.Normalize(&again)
			if err != nil {
				t.Fatalf("Normalize again: %v", err)
			}
			if diff := cmp.Diff(n, again); diff != "" {
				t.Fatalf("Normalize of its own result changes it (-once +twice):\n%s", diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("what came over the wire differs from Normalize (-Normalize +Decode):\n%s", diff)
		}
	})
}

func TestTextsAreCut(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, c := range []struct {
		typ   string
		set   func(*events.Event) *string
		limit int
	}{
		{events.TaskSent, func(e *events.Event) *string { return &e.Args }, events.MaxPreview},
		{events.TaskSucceeded, func(e *events.Event) *string { return &e.Result }, events.MaxPreview},
		{events.TaskFailed, func(e *events.Event) *string { return &e.Exception }, events.MaxText},
		{events.TaskFailed, func(e *events.Event) *string { return &e.Stack }, events.MaxText},
	} {
		for name, s := range map[string]string{
			"two-byte characters": long, "shifted by one": "x" + long, "no UTF-8 at all": strings.Repeat("a\xff", 5000),
		} {
			e := events.Event{Type: c.typ}
			*c.set(&e) = s
			n := e
			err := events.Normalize(&n)
			if err != nil {
				t.Fatal(err)
			}
			got := *c.set(&n)
			if !utf8.ValidString(got) || len(got) > c.limit || len(got) < c.limit-3 {
				t.Errorf("%s, %s: %d bytes, valid %v; want at most %d and only a character less", c.typ, name, len(got), utf8.ValidString(got), c.limit)
			}
		}
	}
}

type panicky struct{}

func (panicky) MarshalJSON() ([]byte, error) { panic("no") }

func TestFieldsThatCannotTravelAreLeftOut(t *testing.T) {
	deep := any("end")
	for range 50 {
		deep = []any{deep}
	}
	loop := map[string]any{}
	loop["loop"] = loop
	e := events.Event{Type: "x", Fields: map[string]any{
		"ok": 1, "nan": math.NaN(), "inf": math.Inf(1), "func": func() {}, "panic": panicky{}, "deep": deep, "loop": loop,
		"": 1, "bad\xff": 1, strings.Repeat("k", 200): 1, "list": make([]int, 100_000), "task-id": "stolen", "stack-trace": "stolen",
		"z-small": map[string]int{"a": 1},
	}}
	n := e
	err := events.Normalize(&n)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"ok": 1.0, "z-small": map[string]any{"a": 1.0}}
	if diff := cmp.Diff(want, n.Fields); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFieldsAreBounded(t *testing.T) {
	m := map[string]any{}
	for i := range 10_000 {
		m[strings.Repeat("k", 1+i%128)+string(rune('a'+i%26))] = strings.Repeat("\x01", 9000)
	}
	data, err := events.Encode([]events.Event{{Type: "x", Fields: m}})
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 6*20<<10 {
		t.Errorf("an event with huge Fields takes %d bytes", len(data))
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, es := range map[string][]events.Event{
		"nothing":        nil,
		"too many":       slices.Repeat([]events.Event{{Type: "x"}}, events.MaxBatch+1),
		"no type":        {{TaskID: "1"}},
		"blank type":     {{Type: "task sent"}},
		"long type":      {{Type: strings.Repeat("x", 65)}},
		"bad id":         {{Type: "x", TaskID: "a b"}},
		"bad id of many": {{Type: "x"}, {Type: "x", TaskID: "ä"}},
	} {
		if data, err := events.Encode(es); !errors.Is(err, events.ErrMalformed) {
			t.Errorf("%s: %q, %v; want ErrMalformed", name, data, err)
		}
	}
}

func TestDecodeReadsWhatOthersWrite(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want events.Event
	}{
		"a single map": {`{"type":"task-started","pid":3}`, events.Event{Type: "task-started", PID: 3}},
		"white space":  {" [ {\n\"type\" : \"task-started\" ,\t\"pid\" : 3 } ]\r\n", events.Event{Type: "task-started", PID: 3}},
		"the type last, fields of other types": {
			`[{"pid":3,"retries":1,"exception":"x","type":"task-started"}]`, events.Event{Type: "task-started", PID: 3},
		},
		"a timestamp with a fraction": {
			`[{"type":"x","timestamp":1.5e12}]`, events.Event{Type: "x", Time: time.UnixMilli(1_500_000_000_000).UTC()},
		},
		"durations with an exponent": {
			`[{"type":"task-failed","runtime-ms":1.5e3,"pool-ms":1500.0000000}]`,
			events.Event{Type: "task-failed", Runtime: 1500 * time.Millisecond, Pool: 1500 * time.Millisecond},
		},
		"null": {
			`[{"type":"task-failed","task-id":null,"node-id":null,"timestamp":null,"runtime-ms":null,"retry":null,"exception":null,"note":null}]`,
			events.Event{Type: "task-failed", Fields: map[string]any{"note": nil}},
		},
		"names twice": {`[{"type":"a","type":"b","f":1,"f":2}]`, events.Event{Type: "b", Fields: map[string]any{"f": 2.0}}},
		"escapes": {
			`[{"type":"task-succeeded","result":"\"\\\/\b\f\n\r\t\u00e4\ud83d\ude00\ud83dx\u0000"}]`,
			events.Event{Type: "task-succeeded", Result: "\"\\/\b\f\n\r\tä😀\uFFFDx\x00"},
		},
		"escaped names":     {`[{"ty\u0070e":"x"}]`, events.Event{Type: "x"}},
		"bytes not UTF-8":   {"[{\"type\":\"x\",\"node-id\":\"a\xffb\"}]", events.Event{Type: "x", NodeID: "a\uFFFDb"}},
		"further fields":    {`[{"type":"x","f":{"a":[1,true,"s",null,{}]}}]`, events.Event{Type: "x", Fields: map[string]any{"f": map[string]any{"a": []any{1.0, true, "s", nil, map[string]any{}}}}}},
		"a long foreign id": {`[{"type":"x","node-id":"` + strings.Repeat("n", 9000) + `"}]`, events.Event{Type: "x", NodeID: strings.Repeat("n", 256)}},
	} {
		got, err := events.Decode([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([]events.Event{c.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"nothing":            "",
		"blank":              "  ",
		"null":               "null",
		"a number":           "1",
		"an empty list":      "[]",
		"an empty map":       "{}",
		"a list of numbers":  "[1]",
		"a list of lists":    `[[{"type":"x"}]]`,
		"no type":            `[{"task-id":"1"}]`,
		"type null":          `[{"type":null}]`,
		"type a number":      `[{"type":1}]`,
		"bad task id":        `[{"type":"x","task-id":"a b"}]`,
		"retries a text":     `[{"type":"x","retries":"1"}]`,
		"retries negative":   `[{"type":"x","retries":-1}]`,
		"retries huge":       `[{"type":"x","retries":1e300}]`,
		"pid out of range":   `[{"type":"x","pid":1e999}]`,
		"time out of range":  `[{"type":"x","timestamp":1e17}]`,
		"time negative":      `[{"type":"x","timestamp":-1}]`,
		"runtime negative":   `[{"type":"x","runtime-ms":-1}]`,
		"runtime huge":       `[{"type":"x","runtime-ms":1e18}]`,
		"retry a number":     `[{"type":"x","retry":1}]`,
		"two values":         `[{"type":"x"}] 1`,
		"a comma too much":   `[{"type":"x"},]`,
		"a member too few":   `[{"type":"x",}]`,
		"no colon":           `[{"type" "x"}]`,
		"cut off":            `[{"type":"x"`,
		"cut off in a text":  `[{"type":"x`,
		"cut off in escape":  `[{"type":"x\`,
		"cut off in \\u":     `[{"type":"x\u00`,
		"bad escape":         `[{"type":"\x"}]`,
		"control character":  "[{\"type\":\"a\nb\"}]",
		"control in escaped": "[{\"type\":\"a\\n\nb\"}]",
		"leading zero":       `[{"type":"x","a":01}]`,
		"plus":               `[{"type":"x","a":+1}]`,
		"bare point":         `[{"type":"x","a":1.}]`,
		"bare exponent":      `[{"type":"x","a":1e}]`,
		"bare minus":         `[{"type":"x","a":-}]`,
		"NaN":                `[{"type":"x","a":NaN}]`,
		"a cut-off literal":  `[{"type":"x","a":tru}]`,
		"a NUL byte":         "[{\"type\":\"x\"}\x00]",
		"101 events":         "[" + strings.Repeat(`{"type":"x"},`, 100) + `{"type":"x"}]`,
		"deep":               `[{"type":"x","a":` + strings.Repeat("[", 1_000_000) + `}]`,
		"deep maps":          `[{"type":"x","a":` + strings.Repeat(`{"a":`, 1_000_000) + `}]`,
		"numerous":           `[{"type":"x","a":[` + strings.Repeat("1,", 100_000) + `1]}]`,
		"too large":          `[{"type":"x","a":"` + strings.Repeat("a", events.MaxMessage) + `"}]`,
	} {
		if got, err := events.Decode([]byte(in)); !errors.Is(err, events.ErrMalformed) {
			t.Errorf("%s: %v, %v; want ErrMalformed", name, got, err)
		}
	}
}

func TestDecodeKeepsNothingOfItsInput(t *testing.T) {
	data := []byte(`[{"type":"task-sent","task-id":"1","node-id":"n","name":"abc","args":"xyz","f":"field"}]`)
	got, err := events.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = '#'
	}
	if got[0].Name != "abc" || got[0].Args != "xyz" || got[0].Fields["f"] != "field" {
		t.Errorf("events changed with the message they were read from: %+v", got[0])
	}
}

func FuzzDecode(f *testing.F) {
	for _, typ := range types {
		data, err := events.Encode([]events.Event{full(typ)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{`{"type":"x","a":[{"b":"\ud83d\ude00\u0000"},-1.5e-3,true,false,null]}`, `[{"type":"task-failed","runtime-ms":0.000001}]`, "[[", "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		es, err := events.Decode(data)
		if err != nil {
			if !errors.Is(err, events.ErrMalformed) || es != nil {
				t.Fatalf("Decode returned %v and %v", es, err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted what is not JSON: %q", data)
		}
		out, err := events.Encode(es)
		if err != nil {
			t.Fatalf("Encode of what Decode gave: %v", err)
		}
		again, err := events.Decode(out)
		if err != nil {
			t.Fatalf("Decode of what Encode gave: %v", err)
		}
		if diff := cmp.Diff(es, again); diff != "" {
			t.Fatalf("a second round changes the events (-first +second):\n%s", diff)
		}
	})
}

// plain is an Event for encoding/json, for comparison in the benchmarks.
type plain struct {
	Type       string `json:"type"`
	TaskID     string `json:"task-id"`
	NodeID     string `json:"node-id"`
	Timestamp  int64  `json:"timestamp"`
	Name       string `json:"name"`
	Args       string `json:"args"`
	Retries    int    `json:"retries"`
	Queue      string `json:"queue"`
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
}

func batch() []events.Event {
	e := full(events.TaskSent)
	e.Fields = nil
	return slices.Repeat([]events.Event{e}, events.MaxBatch)
}

func perEvent(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events.MaxBatch, "ns/event")
}

func BenchmarkEncode(b *testing.B) {
	es := batch()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Encode(es); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b)
}

func BenchmarkEncodeWithEncodingJSON(b *testing.B) {
	es := batch()
	b.ReportAllocs()
	for b.Loop() {
		ps := make([]plain, 0, len(es))
		for _, e := range es {
			ps = append(ps, plain{e.Type, string(e.TaskID), e.NodeID, e.Time.UnixMilli(), e.Name, e.Args, e.Retries, e.Queue, e.Exchange, e.RoutingKey})
		}
		if _, err := json.Marshal(ps); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b)
}

func BenchmarkDecode(b *testing.B) {
	data, err := events.Encode(batch())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b)
}

func BenchmarkDecodeWithEncodingJSON(b *testing.B) {
	data, err := events.Encode(batch())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var ms []map[string]any
		if err := json.Unmarshal(data, &ms); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b)
}
