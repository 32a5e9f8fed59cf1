package wire_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

func decode(t testing.TB, m *broker.Message) *task.Envelope {
	t.Helper()
	e, err := wire.Format{}.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func encode(t testing.TB, e *task.Envelope) *broker.Message {
	t.Helper()
	m, err := wire.Format{}.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// step returns the link of a task as a signature of Celery has it.
func step(id task.ID, name, args string, change func(*task.Link)) task.Link {
	l := task.Link{ID: id, Name: name, ContentType: wire.ContentJSONArgs, Args: []byte(args), Feed: task.FeedPrepend, ReplyTo: "a263861a"}
	if change != nil {
		change(&l)
	}
	return l
}

func last(l *task.Link) { l.Last = true }

// TestDecodeCaptured reads what Celery sent.
func TestDecodeCaptured(t *testing.T) {
	base := func(args string, change func(*task.Envelope)) *task.Envelope {
		e := &task.Envelope{
			Version: 1, ID: "fad0cb1e", Name: "interop.add", ContentType: wire.ContentJSONArgs, Args: []byte(args), ReplyTo: "c28d8671",
			Meta: task.Metadata{Serializer: task.Set("application/json")},
		}
		if change != nil {
			change(e)
		}
		return e
	}
	noReply := func(l *task.Link) { l.ReplyTo = "" }
	want := map[string]*task.Envelope{
		"add": base(`[[1,2],{}]`, func(e *task.Envelope) {
			e.Origin, e.Headers = "gen22739@vm", map[string]string{"x-custom": "v"}
		}),
		"late": base(`[[1],{"y":2}]`, func(e *task.Envelope) {
			e.Meta.NotBefore = task.Set(time.Date(2026, 11, 20, 14, 52, 46, 112e6, time.UTC))
			e.Meta.Expires = task.Set(time.Date(2026, 11, 20, 14, 53, 46, 112e6, time.UTC))
			e.Meta.TimeLimit, e.Meta.SoftTimeLimit = task.Set(20*time.Second), task.Set(10*time.Second)
			e.Retries = 2
		}),
		"chain": base(`[[1,2],{}]`, func(e *task.Envelope) {
			e.Then = []task.Link{step("03a0438f", "interop.mul", `[[3],{}]`, func(l *task.Link) {
				l.Last, l.ReplyTo = true, "904f5bb0"
				l.Then = []task.Link{step("39bab3ca", "interop.add", `[[4],{}]`, func(l *task.Link) { l.Last, l.Queue, l.ReplyTo = true, "other.q", "904f5bb0" })}
			})}
		}),
		"callbacks": base(`[[1,2],{}]`, func(e *task.Envelope) {
			e.Then = []task.Link{step("", "a.add", `[[3],{}]`, noReply), step("", "a.add", `[[1],{}]`, noReply), step("", "a.add", `[[2],{}]`, noReply)}
			e.Else = []task.Link{step("", "a.add", `[[1,2],{}]`, func(l *task.Link) { l.ReplyTo, l.Feed = "", task.FeedNone })}
		}),
		"chord part": base(`[[3,4],{}]`, func(e *task.Envelope) {
			e.Group, e.GroupIndex = "f0f3c342", 1
			chord := step("07de1076", "a.sum", `[[],{}]`, func(l *task.Link) {
				l.Then = []task.Link{step("7252d8d6", "a.add", `[[9],{}]`, last)}
			})
			e.Chord = &chord
		}),
		"chain in chord": base(`[[1,2],{}]`, func(e *task.Envelope) {
			e.Group = "f0f3c342"
			chord := step("07de1076", "a.sum", `[[],{}]`, nil)
			e.Chord, e.Then = &chord, []task.Link{step("4d4bf97c", "a.add", `[[5],{}]`, last)}
		}),
		"chord in chain": base(`[[1,2],{}]`, func(e *task.Envelope) {
			chord := step("cede00ee", "a.sum", `[[],{}]`, nil)
			e.Then = []task.Link{{ID: "ba32e8ff", Last: true, Chord: &chord, Members: []task.Link{
				step("01c1cae3", "a.add", `[[1],{}]`, nil), step("ff43bb42", "a.add", `[[2],{}]`, nil),
			}}}
		}),
		"group at the end": base(`[[1,1],{}]`, func(e *task.Envelope) {
			e.Then = []task.Link{step("7efa7156", "a.add", `[[3],{}]`, func(l *task.Link) {
				l.Last, l.ReplyTo, l.Headers = true, "", map[string]string{"swarmiji-celery-options": `{"countdown":5}`}
				l.Then = []task.Link{step("ad6053f3", "a.add", `[[1],{}]`, nil), step("a220c440", "a.add", `[[2],{}]`, nil)}
			})}
		}),
		"msgpack": base("\x92\x92\x01\x02\x80", func(e *task.Envelope) { e.ContentType = wire.ContentMsgpackArgs }),
	}
	for name, m := range captured {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want[name], decode(t, m), optEqual); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// optEqual compares optional values.
var optEqual = cmp.Options{
	cmp.Comparer(func(a, b task.Opt[string]) bool { return a == b }), cmp.Comparer(func(a, b task.Opt[int]) bool { return a == b }),
	cmp.Comparer(func(a, b task.Opt[bool]) bool { return a == b }), cmp.Comparer(func(a, b task.Opt[time.Duration]) bool { return a == b }),
	cmp.Comparer(func(a, b task.Opt[time.Time]) bool {
		return a.IsSet() == b.IsSet() && a.Or(time.Time{}).Equal(b.Or(time.Time{}))
	}),
}

// TestEncodeCaptured writes the decoded tasks, and reads the same again: a retry keeps the chain,
// the callbacks and the chord.
func TestEncodeCaptured(t *testing.T) {
	for name, m := range captured {
		t.Run(name, func(t *testing.T) {
			e := decode(t, m)
			out := encode(t, e)
			if diff := cmp.Diff(e, decode(t, out), optEqual); diff != "" {
				t.Errorf("a second time, -first +second:\n%s", diff)
			}
			if again := encode(t, e); !bytes.Equal(out.Body, again.Body) {
				t.Errorf("two encodings differ:\n%s\n%s", out.Body, again.Body)
			}
			wantID := e.ID
			if out.ID != string(wantID) || out.Properties["correlation-id"] != string(wantID) || out.Properties["reply-to"] != "c28d8671" {
				t.Errorf("id %q, properties %v", out.ID, out.Properties)
			}
		})
	}
}

// TestEncodeBody compares whole bodies with those of Celery.
func TestEncodeBody(t *testing.T) {
	for _, name := range []string{"add", "chain", "chain in chord", "chord part"} {
		m := captured[name]
		got := compact(string(encode(t, decode(t, m)).Body))
		if diff := cmp.Diff(compact(string(m.Body)), got); diff != "" {
			t.Errorf("%s: -Celery +ours:\n%s", name, diff)
		}
	}
}

// TestEncode writes tasks of a Go producer.
func TestEncode(t *testing.T) {
	e := &task.Envelope{ID: "id-1", Name: "mail.send", ContentType: serializer.ContentJSON, Args: []byte(`{"to":"a"}`), Headers: map[string]string{"trace": "x"}}
	e.Meta.NotBefore = task.Set(time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC))
	e.Meta.Priority, e.Meta.TimeLimit = task.Set(91), task.Set(1500*time.Millisecond)
	m := encode(t, e)
	wantHeaders := map[string]any{
		"lang": "py", "task": "mail.send", "id": "id-1", "root_id": "id-1", "trace": "x",
		"eta": "2026-01-02T03:04:05.678000+00:00", "timelimit": []any{1.5, nil},
	}
	if diff := cmp.Diff(wantHeaders, m.Headers); diff != "" {
		t.Errorf("headers: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(`[[{"to":"a"}],{},{"callbacks":null,"chain":null,"chord":null,"errbacks":null}]`, string(m.Body)); diff != "" {
		t.Errorf("body: -want +got:\n%s", diff)
	}
	if m.Properties["priority"] != "9" {
		t.Errorf("priority %q, want 9", m.Properties["priority"])
	}
	e.Retries, e.Parent = 1, "before"
	m = encode(t, e)
	if m.Headers["retries"] != int64(1) || m.Headers["parent_id"] != "id-1" {
		t.Errorf("headers of a retry: %v", m.Headers)
	}
	if back := decode(t, m); back.Parent != "before" || back.Retries != 1 {
		t.Errorf("parent %q, retries %d after a retry", back.Parent, back.Retries)
	}
}

// TestOwnFields carries what Celery has no field for.
func TestOwnFields(t *testing.T) {
	e := decode(t, captured["chain in chord"])
	e.GroupSize, e.Life, e.Parked, e.Copy, e.Correlation = 3, 2, 1, "copy", "mine"
	e.Meta.MaxRetries, e.Meta.Retry, e.Meta.FairnessKey = task.Set(0), task.Set("all"), task.Set("k")
	e.Then[0].Meta.MaxRetries, e.Then[0].Meta.TimeLimit = task.Set(7), task.Set(time.Minute)
	e.Then[0].Headers = map[string]string{"trace": "x"}
	e.Meta.Retry = task.Opt[string]{}
	m := encode(t, e)
	if diff := cmp.Diff(e, decode(t, m), optEqual); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[task.ID]int{"f0f3c342": 3}, wire.ChordSizes(m)); diff != "" {
		t.Errorf("sizes of chords: -want +got:\n%s", diff)
	}
	if sizes := wire.ChordSizes(captured["add"]); sizes != nil {
		t.Errorf("a task without a chord has the sizes %v", sizes)
	}
}

// TestChordInChord keeps the size of the outer chord, whose members are bodies of other chords. No
// message of its own has it before the first inner chord ends.
func TestChordInChord(t *testing.T) {
	body := task.Link{ID: "body-1", Name: "a.total", ContentType: wire.ContentJSONArgs, Args: []byte(`[[],{}]`), Feed: task.FeedPrepend}
	inner := body
	inner.ID, inner.Group, inner.GroupIndex, inner.GroupSize, inner.Chord = "body-2", "outer", 1, 2, &body
	e := &task.Envelope{
		ID: "id-1", Name: "a.add", ContentType: wire.ContentJSONArgs, Args: []byte(`[[1,2],{}]`), Group: "inner", GroupSize: 3, Chord: &inner,
	}
	m := encode(t, e)
	if diff := cmp.Diff(map[task.ID]int{"inner": 3, "outer": 2}, wire.ChordSizes(m)); diff != "" {
		t.Errorf("sizes of chords: -want +got:\n%s", diff)
	}
	back := decode(t, m)
	if diff := cmp.Diff(e.Chord, back.Chord, optEqual); diff != "" || back.GroupSize != 3 {
		t.Errorf("%d members, -want +got:\n%s", back.GroupSize, diff)
	}
	m.Headers["swarmiji-chord"] = "inner 0 outer -1 other x bad\x01id 3 inner"
	if back := decode(t, m); back.GroupSize != 0 || back.Chord.GroupSize != 0 {
		t.Errorf("%d and %d members", back.GroupSize, back.Chord.GroupSize)
	}
}

// TestEmptyGroup gives the step behind a group without tasks an empty list.
func TestEmptyGroup(t *testing.T) {
	for name, steps := range map[string]string{
		"group": `{"task":"a.b","args":[2],"kwargs":{},"options":{"task_id":"b"}},{"task":"celery.group","args":[],"kwargs":{"tasks":[]},"options":{}}`,
		"chord": `{"task":"celery.chord","args":[],"kwargs":{"header":{"task":"celery.group","args":[],"kwargs":{"tasks":[]},"options":{}},` +
			`"body":{"task":"a.b","args":[2],"kwargs":{},"options":{"task_id":"b"}}},"options":{}}`,
	} {
		m := &broker.Message{ContentType: serializer.ContentJSON, Headers: map[string]any{"task": "a.a", "id": "id-1"}}
		m.Body = []byte(`[[1],{},{"callbacks":null,"errbacks":null,"chain":[` + steps + `],"chord":null}]`)
		e, err := wire.Format{}.Decode(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []task.Link{{ID: "b", Name: "a.b", ContentType: wire.ContentJSONArgs, Args: []byte(`[[[],2],{}]`), Feed: task.FeedNone, Last: true}}
		if diff := cmp.Diff(want, e.Then, optEqual); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestGroupBehindChord gives an id to the step that Go needs between a chord and a group: without
// one the step could not be sent.
func TestGroupBehindChord(t *testing.T) {
	for name, chord := range map[string]string{
		"group": `{"task":"celery.group","args":[],"kwargs":{"tasks":[` +
			`{"task":"a.b","args":[],"kwargs":{},"options":{"task_id":"b"}},{"task":"a.c","args":[],"kwargs":{},"options":{"task_id":"c"}}]},"options":{}}`,
		"chord": `{"task":"celery.chord","args":[],"kwargs":{"header":[{"task":"a.b","args":[],"kwargs":{},"options":{"task_id":"b"}}],` +
			`"body":{"task":"a.c","args":[],"kwargs":{},"options":{"task_id":"c"}}},"options":{}}`,
	} {
		body := `[[1],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":` + chord + `}]`
		m := &broker.Message{ContentType: serializer.ContentJSON, Body: []byte(body), Headers: map[string]any{"task": "a.a", "id": "id-1", "group": "g", "group_index": int64(0)}}
		first, second := decode(t, m), decode(t, m)
		if first.Chord.ID.Check() != nil || first.Chord.ID != second.Chord.ID {
			t.Errorf("%s: the step has the ids %q and %q", name, first.Chord.ID, second.Chord.ID)
		}
		step := strings.Replace(`{"task":"a.s","args":[],"kwargs":{},"options":{"task_id":"s","group_id":"g","group_index":0,"chord":X}}`, "X", chord, 1)
		m.Body = []byte(`[[1],{},{"callbacks":null,"errbacks":null,"chain":[` + step + `],"chord":null}]`)
		if back := decode(t, m); back.Chord.ID != first.Chord.ID {
			t.Errorf("%s: behind a chain it has the id %q, not %q", name, back.Chord.ID, first.Chord.ID)
		}
	}
}

// TestGroup writes a group without a next task with a task that every Celery application has.
func TestGroup(t *testing.T) {
	gather := task.Link{ID: "g-1", Name: task.GatherName}
	e := &task.Envelope{ID: "id-1", Name: "a.add", ContentType: wire.ContentJSONArgs, Args: []byte(`[[1,2],{}]`), Group: "g", GroupSize: 2, Chord: &gather}
	m := encode(t, e)
	if !strings.Contains(string(m.Body), `"chord":{"args":[],"immutable":false,"kwargs":{"index":0},"options":{"task_id":"g-1"},"subtask_type":null,"task":"celery.accumulate"}`) {
		t.Errorf("body %s", m.Body)
	}
	if back := decode(t, m); back.Chord.Name != task.GatherName || back.GroupSize != 2 {
		t.Errorf("chord %+v of %d", back.Chord, back.GroupSize)
	}
	sent := &task.Envelope{ID: "g-1", Name: task.GatherName, ContentType: serializer.ContentJSON, Args: []byte(`[3,7]`)}
	m = encode(t, sent)
	if m.Headers["task"] != "celery.accumulate" || !bytes.HasPrefix(m.Body, []byte(`[[[3,7]],{"index":0},`)) {
		t.Errorf("%v %s", m.Headers, m.Body)
	}
	if back := decode(t, m); back.Name != task.GatherName || string(back.Args) != `[3,7]` || back.ContentType != serializer.ContentJSON {
		t.Errorf("%+v", back)
	}
}

// TestRefusedByEncode lists what Celery cannot express.
func TestRefusedByEncode(t *testing.T) {
	for name, change := range map[string]func(*task.Envelope){
		"no name":      func(e *task.Envelope) { e.Name = "" },
		"no id":        func(e *task.Envelope) { e.ID = "" },
		"raw bytes":    func(e *task.Envelope) { e.ContentType = serializer.ContentRaw },
		"sealed":       func(e *task.Envelope) { e.ContentType += "+sealed" },
		"no pair":      func(e *task.Envelope) { e.Args = []byte(`[1]`) },
		"field":        func(e *task.Envelope) { e.Then = []task.Link{{Name: "b", Feed: task.FeedInto, Field: "x"}} },
		"map":          func(e *task.Envelope) { e.Then = []task.Link{{Each: true, Members: []task.Link{{Name: "b"}}}} },
		"collect":      func(e *task.Envelope) { e.Group, e.Chord = "g", &task.Link{Name: "b", Policy: task.Collect} },
		"two branches": func(e *task.Envelope) { e.Then = []task.Link{{Name: "b", Last: true}, {Name: "c", Last: true}} },
	} {
		e := &task.Envelope{ID: "id-1", Name: "a", ContentType: wire.ContentJSONArgs, Args: []byte(`[[1],{}]`)}
		change(e)
		if _, err := (wire.Format{}).Encode(e); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("%s: %v, want ErrValue", name, err)
		}
	}
}

// TestHostile reads messages that no program of Celery sends.
func TestHostile(t *testing.T) {
	rest := `,{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]`
	many := `[[],{},{"chain":[` + strings.Repeat(`{"task":"a"},`, 1001) + `{"task":"a"}]}]`
	for name, c := range map[string]struct {
		m    *broker.Message
		want error
	}{
		"no headers":       {&broker.Message{ContentType: "application/json", Body: []byte(`{}`)}, serializer.ErrNotMine},
		"id is a number":   {message(`[[]`+rest, map[string]any{"id": int64(3)}), serializer.ErrNotMine},
		"bad id":           {message(`[[]`+rest, map[string]any{"id": "a b"}), serializer.ErrMalformed},
		"bad name":         {message(`[[]`+rest, map[string]any{"task": "__main__.add"}), serializer.ErrMalformed},
		"body is a map":    {message(`{}`, nil), serializer.ErrMalformed},
		"body is cut":      {message(`[[1,2],{`, nil), serializer.ErrMalformed},
		"two parts":        {message(`[[],{}]`, nil), serializer.ErrMalformed},
		"args is a map":    {message(`[{}`+rest, nil), serializer.ErrMalformed},
		"kwargs is a list": {message(`[[],[],{}]`, nil), serializer.ErrMalformed},
		"embed is a list":  {message(`[[],{},[]]`, nil), serializer.ErrMalformed},
		"deep":             {message(`[[`+strings.Repeat(`[`, 100)+strings.Repeat(`]`, 100)+`]`+rest, nil), serializer.ErrMalformed},
		"long chain":       {message(many, nil), serializer.ErrMalformed},
		"chain of numbers": {message(`[[],{},{"chain":[1]}]`, nil), serializer.ErrMalformed},
		"chord, no group":  {message(`[[],{},{"chord":{"task":"a"}}]`, nil), serializer.ErrMalformed},
		"eta":              {message(`[[]`+rest, map[string]any{"eta": "tomorrow"}), serializer.ErrMalformed},
		"eta is a number":  {message(`[[]`+rest, map[string]any{"eta": int64(1)}), serializer.ErrMalformed},
		"one time limit":   {message(`[[]`+rest, map[string]any{"timelimit": []any{nil}}), serializer.ErrMalformed},
		"time limit":       {message(`[[]`+rest, map[string]any{"timelimit": []any{"1", nil}}), serializer.ErrMalformed},
		"negative retries": {message(`[[]`+rest, map[string]any{"retries": int64(-1)}), serializer.ErrMalformed},
		"retries":          {message(`[[]`+rest, map[string]any{"retries": "many"}), serializer.ErrMalformed},
		"group":            {message(`[[]`+rest, map[string]any{"group": int64(1)}), serializer.ErrMalformed},
		"our header":       {message(`[[]`+rest, map[string]any{"swarmiji-celery": "{"}), serializer.ErrMalformed},
		"compression":      {message(`[[]`+rest, map[string]any{"compression": "application/x-lzma"}), serializer.ErrUnknownType},
		"bad zlib":         {message(`[[]`+rest, map[string]any{"compression": "application/x-gzip"}), serializer.ErrMalformed},
		"pickle":           {change(message(`[[]`+rest, nil), func(m *broker.Message) { m.ContentType = "application/x-python-serialize" }), serializer.ErrUnknownType},
		"yaml":             {change(message(`[[]`+rest, nil), func(m *broker.Message) { m.ContentType = "application/x-yaml" }), serializer.ErrUnknownType},
		"encoding":         {change(message(`[[]`+rest, nil), func(m *broker.Message) { m.Properties["content-encoding"] = "base64" }), serializer.ErrUnknownType},
		"bomb":             {change(message(squeeze(t, zlibWriter, `[["`+strings.Repeat("a", 1<<20)+`"]`+rest), map[string]any{"compression": "application/x-gzip"}), nil), serializer.ErrTooLarge},
	} {
		_, err := wire.Format{}.Decode(c.m)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if errors.Is(c.want, serializer.ErrUnknownType) && !strings.Contains(err.Error(), "interop.add") {
			t.Errorf("%s: %v does not name the task", name, err)
		}
	}
}

func change(m *broker.Message, fn func(*broker.Message)) *broker.Message {
	if fn != nil {
		fn(m)
	}
	return m
}

func zlibWriter(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
func gzipWriter(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

// squeeze returns a compressed text.
func squeeze(t testing.TB, writer func(io.Writer) io.WriteCloser, text string) string {
	var b bytes.Buffer
	w := writer(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCompressed reads compressed bodies. Celery calls a zlib stream gzip.
func TestCompressed(t *testing.T) {
	plain := `[[1, 2], {}, {}]`
	bz2, err := hex.DecodeString(bzip2OfPlain)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ body, compression string }{
		"zlib":  {squeeze(t, zlibWriter, plain), "application/x-gzip"},
		"gzip":  {squeeze(t, gzipWriter, plain), "application/x-gzip"},
		"bzip2": {string(bz2), "application/x-bz2"},
	} {
		e, err := wire.Format{}.Decode(message(c.body, map[string]any{"compression": c.compression}))
		if err != nil || string(e.Args) != `[[1, 2],{}]` && string(e.Args) != `[[1,2],{}]` {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// TestForms reads the leanest messages, and headers in the types that other senders use.
func TestForms(t *testing.T) {
	bare := &broker.Message{ContentType: "application/json", Body: []byte(`[[],{},null]`), Headers: map[string]any{"task": "a", "id": "order-7"}}
	if e := decode(t, bare); e.ID != "order-7" || string(e.Args) != `[[],{}]` {
		t.Errorf("%+v", e)
	}
	for text, want := range map[string]string{
		"2026-11-20T00:00:00Z": "2026-11-20T00:00:00Z", "2026-11-20T00:00:00.123456": "2026-11-20T00:00:00.123Z",
		"2026-11-20T02:00:00+02:00": "2026-11-20T00:00:00Z", "2026-11-20 00:00:00": "2026-11-20T00:00:00Z",
		"2026-11-20T00:00:00.123456789Z": "2026-11-20T00:00:00.123Z",
	} {
		got, err := wire.ParseTime(text)
		if err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, %v, want %s", text, got, err, want)
		}
	}
	m := message(`[[],{},null]`, map[string]any{"retries": int8(3), "timelimit": []any{float64(0.5), int32(2)}, "nested": map[string]any{"a": int64(1)}})
	e := decode(t, m)
	if e.Retries != 3 || e.Meta.TimeLimit.Or(0) != 500*time.Millisecond || e.Meta.SoftTimeLimit.Or(0) != 2*time.Second {
		t.Errorf("%+v", e)
	}
	if diff := cmp.Diff(map[string]any{"a": int64(1)}, encode(t, e).Headers["nested"]); diff != "" {
		t.Errorf("an unknown header: -want +got:\n%s", diff)
	}
}

// TestCountdown starts a step with a countdown that much later than it is sent.
func TestCountdown(t *testing.T) {
	l := decode(t, captured["group at the end"]).Then[0]
	e := &task.Envelope{ID: l.ID, Name: l.Name, ContentType: l.ContentType, Args: l.Args, Headers: maps.Clone(l.Headers)}
	before := time.Now()
	text, _ := encode(t, e).Headers["eta"].(string)
	eta, err := wire.ParseTime(text)
	if err != nil || eta.Before(before.Add(4900*time.Millisecond)) || eta.After(time.Now().Add(5100*time.Millisecond)) {
		t.Errorf("eta %q, sent at %v: %v", text, before, err)
	}
	if m := encode(t, e); m.Headers["swarmiji-celery-options"] != nil {
		t.Error("the options are a header of the message")
	}
}

func TestPriority(t *testing.T) {
	for celery, own := range map[int]int{0: 100, 1: 99, 9: 91, 100: 0, 255: 0, -1: 100} {
		if got := wire.Priority(celery); got != own {
			t.Errorf("Priority(%d) is %d, want %d", celery, got, own)
		}
	}
	for own, celery := range map[int]int{100: 0, 500: 0, 91: 9, 0: 100} {
		if got := wire.CeleryPriority(own); got != celery {
			t.Errorf("CeleryPriority(%d) is %d, want %d", own, got, celery)
		}
	}
}
