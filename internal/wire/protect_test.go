package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/serializer/serializertest"
	"github.com/swarmiji/swarmiji/task"
)

func key(id string, signOnly bool) serializer.Key {
	secret := sha256.Sum256([]byte(id))
	return serializer.Key{ID: id, Secret: secret[:], SignOnly: signOnly}
}

func sealer(t testing.TB, active serializer.Key, opening ...serializer.Key) serializer.Sealer {
	t.Helper()
	r, err := serializer.NewKeyRing(active, opening...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func codec(t testing.TB, c serializer.Wire) *Codec {
	t.Helper()
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func gzipOrS2() serializer.Compression {
	return serializer.Compression{Compressors: []serializer.Compressor{&compress.Gzip{}, compress.S2{}}, Use: "gzip"}
}

func message(t testing.TB, c *Codec, queue string, e *task.Envelope) *broker.Message {
	t.Helper()
	m, err := c.Encode(queue, e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// receive decodes and opens a message like a consumer.
func receive(c *Codec, queue string, m *broker.Message) (*task.Envelope, serializer.Format, error) {
	e, f, _, err := arrive(c, queue, m)
	return e, f, err
}

// arrive is receive, and returns the arguments as they arrived.
func arrive(c *Codec, queue string, m *broker.Message) (e *task.Envelope, f serializer.Format, arrived *Value, err error) {
	if e, f, err = c.Decode(m); err == nil {
		arrived, err = c.OpenArrived(queue, e)
	}
	return e, f, arrived, err
}

// TestProtectedRoundTrip shows that a protected task arrives like an unprotected one in every
// format, also after the consumer sends a copy.
func TestProtectedRoundTrip(t *testing.T) {
	plain := codec(t, serializer.Wire{})
	configs := map[string]serializer.Wire{
		"signed":            {Sealer: sealer(t, key("k", true))},
		"compressed":        {Compression: gzipOrS2()},
		"sealed compressed": {Sealer: sealer(t, key("k", false)), Compression: gzipOrS2()},
	}
	for name, conf := range configs {
		conf.Compression.Above, conf.Compression.Sealed = 1, true
		t.Run(name, func(t *testing.T) {
			c := codec(t, conf)
			rapid.Check(t, func(t *rapid.T) {
				e := serializertest.Envelopes().Draw(t, "envelope")
				if e.Name == "" || e.ID == "" {
					return // only foreign writers send such messages, and they seal nothing
				}
				f := plain.formats[rapid.IntRange(0, 1).Draw(t, "format")]
				bare, err := plain.EncodeAs(f, "q", e, nil)
				if err != nil {
					return // too large, or not expressible in JSON
				}
				want, _, err := receive(plain, "q", bare)
				if err != nil {
					t.Fatal(err)
				}
				for hop := range 2 {
					m, err := c.EncodeAs(f, "q", want, nil)
					if errors.Is(err, serializer.ErrTooLarge) {
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					got, _, err := receive(c, "q", m)
					if err != nil {
						t.Fatalf("hop %d: %v", hop, err)
					}
					got.Meta.Compression, want.Meta.Compression = task.Opt[string]{}, task.Opt[string]{}
					if diff := cmp.Diff(want, got, cmp.AllowUnexported(task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{}), sameEmpty()); diff != "" {
						t.Fatalf("hop %d: %s", hop, diff)
					}
					want = got
				}
			})
		})
	}
}

// sameEmpty treats nil and empty slices as equal.
func sameEmpty() cmp.Option {
	return cmp.FilterValues(func(a, b []byte) bool { return len(a) == 0 && len(b) == 0 }, cmp.Comparer(func(_, _ []byte) bool { return true }))
}

func chained() *task.Envelope {
	return &task.Envelope{
		ID: "id-1", Name: "pay", ContentType: serializer.ContentJSON, Args: []byte(`{"card":"4711"}`), SentAt: time.UnixMilli(1760000000000).UTC(),
		Origin: "node-1", ReplyTo: "node-1", Headers: map[string]string{"tenant": "a"},
		Meta: task.Metadata{MaxRetries: task.Set(2)},
		Then: []task.Link{{ID: "id-2", Queue: "q2", Name: "mail", ContentType: serializer.ContentJSON, Args: []byte(`["secret words"]`), Feed: task.FeedPrepend}},
	}
}

func TestSealedTaskShowsWhatIsNeeded(t *testing.T) {
	c := codec(t, serializer.Wire{Sealer: sealer(t, key("k", false))})
	e := chained()
	for _, f := range []serializer.Format{msgpack.Compact{}, serializer.JSONFormat{}, serializer.RawFormat{}} {
		m, err := c.EncodeAs(f, "q", e, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"4711", "secret words", "NDcxMQ", "mail"} {
			if bytes.Contains(m.Body, []byte(secret)) {
				t.Errorf("%T: %q can be read", f, secret)
			}
		}
		out, _, err := codec(t, serializer.Wire{}).Decode(m)
		if err != nil {
			t.Fatal(err)
		}
		if out.ID != "id-1" || out.Name != "pay" || out.ReplyTo != "node-1" || out.Headers["tenant"] != "a" || out.Meta.MaxRetries.Or(0) != 2 ||
			out.ContentType != "application/json+sealed" || len(out.Then) != 0 {
			t.Errorf("%T: outside it shows %+v", f, out)
		}
		if err := codec(t, serializer.Wire{}).Open("q", out); !errors.Is(err, serializer.ErrUnknownType) {
			t.Errorf("%T: opened without a key: %v", f, err)
		}
	}
	if diff := cmp.Diff(chained().Then, e.Then, cmp.AllowUnexported(task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{})); diff != "" {
		t.Errorf("Encode changed the envelope: %s", diff)
	}
}

// TestSealedTaskCannotBeMoved shows that a sealed task with another id, name or queue is refused,
// like a result used as a task. Changes outside of the seal have no effect.
func TestSealedTaskCannotBeMoved(t *testing.T) {
	ring := sealer(t, key("k", false))
	c, plain := codec(t, serializer.Wire{Sealer: ring}), codec(t, serializer.Wire{})
	fresh := func() *task.Envelope {
		e, _, err := plain.Decode(message(t, c, "q", chained()))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, change := range map[string]func(e *task.Envelope){
		"id":           func(e *task.Envelope) { e.ID = "id-2" },
		"no id":        func(e *task.Envelope) { e.ID = "" },
		"name":         func(e *task.Envelope) { e.Name = "refund" },
		"content type": func(e *task.Envelope) { e.ContentType = "application/msgpack+sealed" },
		"a bit":        func(e *task.Envelope) { e.Args[len(e.Args)/2] ^= 4 },
	} {
		e := fresh()
		change(e)
		if err := c.Open("q", e); !errors.Is(err, serializer.ErrForged) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if err := c.Open("q.low", fresh()); !errors.Is(err, serializer.ErrForged) {
		t.Errorf("another queue: %v", err)
	}

	e := fresh()
	e.Then = []task.Link{{Name: "steal"}}
	e.Else = e.Then
	e.Chord = &e.Then[0]
	e.ReplyTo, e.Retries, e.Headers = "thief", 7, map[string]string{"tenant": "b"}
	e.Meta.MaxRetries, e.Base, e.Unknown = task.Set(100), &task.Metadata{TimeLimit: task.Set(time.Hour)}, []byte{0x81, 100, 1}
	if err := c.Open("q", e); err != nil {
		t.Fatal(err)
	}
	want, _, err := receive(c, "q", message(t, c, "q", chained()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, e, cmp.AllowUnexported(task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{})); diff != "" {
		t.Errorf("what was changed outside of the seal is believed: %s", diff)
	}

	rec := resultstore.Record{ID: "id-1", Name: "pay", State: task.StateSucceeded, ContentType: serializer.ContentJSON, Result: []byte("1")}
	if err := c.ProtectRecord(&rec, task.Opt[string]{}); err != nil {
		t.Fatal(err)
	}
	e = fresh()
	e.ContentType, e.Args = rec.ContentType, rec.Result
	if err := c.Open("q", e); !errors.Is(err, serializer.ErrForged) {
		t.Errorf("a result as a task: %v", err)
	}
	rec.Result = fresh().Args
	if err := c.OpenRecord(&rec); !errors.Is(err, serializer.ErrForged) {
		t.Errorf("a task as a result: %v", err)
	}
}

func TestPlainIsRefused(t *testing.T) {
	plain := codec(t, serializer.Wire{Compression: gzipOrS2()})
	strict := codec(t, serializer.Wire{Sealer: sealer(t, key("k", false)), Compression: gzipOrS2()})
	lenient := codec(t, serializer.Wire{Sealer: sealer(t, key("k", false)), AcceptPlain: true, Compression: gzipOrS2()})
	small, large := chained(), chained()
	large.Args = []byte(`"` + strings.Repeat("abc", 400) + `"`)
	for _, e := range []*task.Envelope{small, large} {
		if _, _, err := receive(strict, "q", message(t, plain, "q", e)); !errors.Is(err, serializer.ErrNotSealed) {
			t.Errorf("strict: %v", err)
		}
		if got, _, err := receive(lenient, "q", message(t, plain, "q", e)); err != nil || !bytes.Equal(got.Args, e.Args) {
			t.Errorf("lenient: %v", err)
		}
	}
	stripped := message(t, strict, "q", small)
	e, _, err := strict.Decode(stripped)
	if err != nil {
		t.Fatal(err)
	}
	e.ContentType = strings.TrimSuffix(e.ContentType, "+sealed")
	if err := strict.Open("q", e); !errors.Is(err, serializer.ErrNotSealed) {
		t.Errorf("said not to be sealed: %v", err)
	}
	rec := resultstore.Record{ID: "id-1", State: task.StateSucceeded, ContentType: serializer.ContentJSON, Result: []byte("1")}
	if err := strict.OpenRecord(&rec); !errors.Is(err, serializer.ErrNotSealed) {
		t.Errorf("result: %v", err)
	}
	if err := lenient.OpenRecord(&rec); err != nil || string(rec.Result) != "1" {
		t.Errorf("result: %v", err)
	}
}

// TestKeysRotate shows that a sealed task is readable before, during and after a key rotation, and
// that its copies use the new key.
func TestKeysRotate(t *testing.T) {
	before := codec(t, serializer.Wire{Sealer: sealer(t, key("old", false), key("new", false))})
	during := codec(t, serializer.Wire{Sealer: sealer(t, key("new", false), key("old", false))})
	after := codec(t, serializer.Wire{Sealer: sealer(t, key("new", false))})
	m := message(t, before, "q", chained())
	if _, _, err := receive(after, "q", m); !errors.Is(err, serializer.ErrUnknownKey) {
		t.Errorf("without the old key: %v", err)
	}
	e, f, err := receive(during, "q", m)
	if err != nil {
		t.Fatal(err)
	}
	e.Retries++
	if m, err = during.EncodeAs(f, "q", e, nil); err != nil {
		t.Fatal(err)
	}
	if e, _, err = receive(after, "q", m); err != nil || e.Retries != 1 {
		t.Errorf("after a retry: %+v, %v", e, err)
	}
}

func TestRecords(t *testing.T) {
	succeeded := resultstore.Record{
		ID: "id-1", Name: "pay", State: task.StateSucceeded, Generation: 2, Deliveries: 1, ContentType: serializer.ContentJSON,
		Result: []byte(`"` + strings.Repeat("result ", 200) + `"`), NodeID: "c", ReplyTo: "p", Correlation: "free text",
	}
	empty := succeeded
	empty.Result, empty.ContentType = nil, ""
	failed := empty
	failed.State, failed.Error = task.StateFailed, &task.RemoteError{Type: "swarmiji.Panic", Message: "card 4711", Stack: "main.go:12"}
	for name, c := range map[string]*Codec{
		"plain":             codec(t, serializer.Wire{}),
		"compressed":        codec(t, serializer.Wire{Compression: gzipOrS2()}),
		"sealed":            codec(t, serializer.Wire{Sealer: sealer(t, key("k", false))}),
		"signed compressed": codec(t, serializer.Wire{Sealer: sealer(t, key("k", true)), Compression: withSealing(gzipOrS2())}),
	} {
		for _, want := range []resultstore.Record{succeeded, empty, failed} {
			stored := want
			if err := c.ProtectRecord(&stored, task.Opt[string]{}); err != nil {
				t.Fatal(err)
			}
			data, err := EncodeRecord(&stored)
			if err != nil {
				t.Fatal(err)
			}
			if name == "sealed" {
				for _, secret := range []string{"result result", "4711", "main.go"} {
					if bytes.Contains(data, []byte(secret)) {
						t.Errorf("%s, %s: %q can be read", name, want.State, secret)
					}
				}
			}
			if want.Error != nil && stored.Error.Type != want.Error.Type {
				t.Errorf("%s: the kind of the error is hidden", name)
			}
			got, err := DecodeRecord(data)
			if err == nil {
				err = c.OpenRecord(&got)
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", name, want.State, err)
			}
			if diff := cmp.Diff(want, got, sameEmpty()); diff != "" {
				t.Errorf("%s, %s: %s", name, want.State, diff)
			}
		}
	}
}

func withSealing(c serializer.Compression) serializer.Compression {
	c.Sealed = true
	return c
}

func TestSealedRecordCannotBeMoved(t *testing.T) {
	c := codec(t, serializer.Wire{Sealer: sealer(t, key("k", false))})
	for name, change := range map[string]func(r *resultstore.Record){
		"id":    func(r *resultstore.Record) { r.ID = "id-2" },
		"state": func(r *resultstore.Record) { r.State = task.StateFailed },
		"type":  func(r *resultstore.Record) { r.ContentType = "+sealed" },
		"bit":   func(r *resultstore.Record) { r.Result[9] ^= 1 },
	} {
		r := resultstore.Record{ID: "id-1", State: task.StateSucceeded, ContentType: serializer.ContentJSON, Result: []byte("1")}
		if err := c.ProtectRecord(&r, task.Opt[string]{}); err != nil {
			t.Fatal(err)
		}
		change(&r)
		if err := c.OpenRecord(&r); !errors.Is(err, serializer.ErrForged) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// TestSealedMemberCannotBeMoved shows that a sealed member is valid only at its position in its
// group, and not as the result of a task.
func TestSealedMemberCannotBeMoved(t *testing.T) {
	c := codec(t, serializer.Wire{Sealer: sealer(t, key("k", false))})
	record := resultstore.Record{ID: "id-1", State: task.StateSucceeded, ContentType: serializer.ContentJSON, Result: []byte("1")}
	member, result := record, record
	if err := errors.Join(c.ProtectMember(&member, task.Opt[string]{}, "g", 1), c.ProtectRecord(&result, task.Opt[string]{})); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() error{
		"another index":        func() error { r := member; return c.OpenMember(&r, "g", 0) },
		"another group":        func() error { r := member; return c.OpenMember(&r, "h", 1) },
		"a member as a result": func() error { r := member; return c.OpenRecord(&r) },
		"a result as a member": func() error { r := result; return c.OpenMember(&r, "g", 1) },
	} {
		if err := open(); !errors.Is(err, serializer.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.OpenMember(&member, "g", 1); err != nil || string(member.Result) != "1" {
		t.Errorf("in its place: %+v, %v", member, err)
	}
}

func TestCompressionOfTasks(t *testing.T) {
	text := `"` + strings.Repeat("some words and ", 100) + `"`
	random := make([]byte, 2000)
	for i, x := 0, uint32(1); i < len(random); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		random[i] = byte(x)
	}
	sealing := sealer(t, key("k", false))
	for name, c := range map[string]struct {
		config serializer.Wire
		meta   task.Metadata
		args   string
		want   string
	}{
		"off":                {serializer.Wire{}, task.Metadata{}, text, "application/json"},
		"understood only":    {serializer.Wire{Compression: serializer.Compression{Compressors: gzipOrS2().Compressors}}, task.Metadata{}, text, "application/json"},
		"large":              {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{}, text, "application/json+gzip"},
		"small":              {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{}, text[:500], "application/json"},
		"not smaller":        {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{}, string(random), "application/json"},
		"beyond the ratio":   {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{}, strings.Repeat("a", 500_000), "application/json"},
		"asked for":          {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{Compression: task.Set("s2")}, text, "application/json+s2"},
		"declined":           {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{Compression: task.Set("")}, text, "application/json"},
		"unknown stays":      {serializer.Wire{Compression: gzipOrS2()}, task.Metadata{Compression: task.Set("br")}, text, "application/json"},
		"sealed":             {serializer.Wire{Compression: gzipOrS2(), Sealer: sealing}, task.Metadata{}, text, "application/json+sealed"},
		"sealed, asked for":  {serializer.Wire{Compression: withSealing(gzipOrS2()), Sealer: sealing}, task.Metadata{}, text, "application/json+gzip+sealed"},
		"larger than a body": {serializer.Wire{Compression: gzipOrS2(), MaxBody: 1000}, task.Metadata{}, text, "application/json+gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			wire := codec(t, c.config)
			e := &task.Envelope{ID: "i", Name: "n", ContentType: serializer.ContentJSON, Args: []byte(c.args), Meta: c.meta}
			m := message(t, wire, "q", e)
			out, _, err := codec(t, serializer.Wire{}).Decode(m)
			if err != nil || out.ContentType != c.want {
				t.Fatalf("content type %q, %v; want %q", out.ContentType, err, c.want)
			}
			got, f, arrived, err := arrive(wire, "q", m)
			if err != nil || got.ContentType != serializer.ContentJSON || string(got.Args) != c.args {
				t.Fatalf("read as %d bytes of %q: %v", len(got.Args), got.ContentType, err)
			}
			again, err := wire.EncodeAs(f, "q", got, arrived) // a copy
			if err != nil || len(again.Body) > len(m.Body)+16 {
				t.Errorf("a copy has %v: %v", again, err)
			}
		})
	}
}

// readOnly is a compressor that fails to compress.
type readOnly struct{ compress.Gzip }

func (*readOnly) Compress([]byte) ([]byte, error) { return nil, errors.New("compressed again") }

// TestCopiesStayCompressed shows that a consumer sends copies of compressed tasks with the
// arguments that it received, because they may be too large otherwise. It does not compress them
// again.
func TestCopiesStayCompressed(t *testing.T) {
	for name, sealing := range map[string]serializer.Sealer{"plain": nil, "sealed": sealer(t, key("k", false))} {
		t.Run(name, func(t *testing.T) {
			compression := withSealing(gzipOrS2())
			sender := codec(t, serializer.Wire{Compression: compression, MaxBody: 1000, Sealer: sealing})
			for name, compressors := range map[string][]serializer.Compressor{"listed": {&readOnly{}}, "not listed": nil} {
				t.Run(name, func(t *testing.T) {
					reader := codec(t, serializer.Wire{Compression: serializer.Compression{Compressors: compressors}, MaxBody: 1000, Sealer: sealing})
					e := &task.Envelope{ID: "i", Name: "n", ContentType: serializer.ContentJSON, Args: []byte(strings.Repeat("some words and ", 100))}
					got, f, arrived, err := arrive(reader, "q", message(t, sender, "q", e))
					if err != nil || len(got.Args) != len(e.Args) {
						t.Fatal(err)
					}
					m, err := reader.EncodeAs(f, "q", got, arrived)
					if err != nil {
						t.Fatal(err)
					}
					got, _, again, err := arrive(sender, "q", m)
					if err != nil || !bytes.Equal(got.Args, e.Args) {
						t.Errorf("the copy is read as %d bytes: %v", len(got.Args), err)
					}
					if again.ContentType != arrived.ContentType || !bytes.Equal(again.Data, arrived.Data) {
						t.Errorf("the copy holds other bytes: %q of %s", again.Data, again.ContentType)
					}
				})
			}
		})
	}
}

func TestRefusedCodings(t *testing.T) {
	zeros := make([]byte, 1<<20)
	squeeze := func(c serializer.Compressor, data []byte) []byte {
		out, err := c.Compress(data)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	small := squeeze(&compress.Gzip{}, []byte(strings.Repeat("abc ", 300)))
	twice := squeeze(&compress.Gzip{}, squeeze(compress.S2{}, zeros[:1000]))
	for name, c := range map[string]struct {
		config      serializer.Wire
		contentType string
		args        []byte
		want        error
	}{
		"nothing configured":   {serializer.Wire{}, "application/json+gzip", small, nil},
		"another one":          {serializer.Wire{Compression: serializer.Compression{Compressors: []serializer.Compressor{compress.S2{}}}}, "application/json+gzip", small, nil},
		"by default too large": {serializer.Wire{}, "application/json+gzip", squeeze(&compress.Gzip{}, zeros), serializer.ErrTooLarge},
		"one inside the other": {serializer.Wire{Compression: gzipOrS2()}, "application/json+s2+gzip", twice, serializer.ErrMalformed},
		"itself":               {serializer.Wire{Compression: gzipOrS2()}, "application/json+gzip+gzip", twice, serializer.ErrMalformed},
		"sealed inside":        {serializer.Wire{Compression: gzipOrS2()}, "application/json+sealed+gzip", twice, serializer.ErrMalformed},
		"beyond the ratio":     {serializer.Wire{Compression: gzipOrS2()}, "application/json+gzip", squeeze(&compress.Gzip{}, zeros), serializer.ErrTooLarge},
		"beyond the size":      {serializer.Wire{Compression: func() serializer.Compression { c := gzipOrS2(); c.MaxRatio, c.MaxPlain = 1<<20, 1<<20-1; return c }()}, "application/json+gzip", squeeze(&compress.Gzip{}, zeros), serializer.ErrTooLarge},
		"garbage":              {serializer.Wire{Compression: gzipOrS2()}, "application/json+gzip", []byte("no gzip"), serializer.ErrMalformed},
		"no bytes":             {serializer.Wire{Compression: gzipOrS2()}, "application/json+gzip", nil, serializer.ErrMalformed},
	} {
		wire := codec(t, c.config)
		e := &task.Envelope{ID: "i", Name: "n", ContentType: c.contentType, Args: c.args}
		if err := wire.Open("q", e); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		rec := resultstore.Record{ID: "i", State: task.StateSucceeded, ContentType: c.contentType, Result: c.args}
		if err := wire.OpenRecord(&rec); !errors.Is(err, c.want) {
			t.Errorf("%s, as a result: %v, want %v", name, err, c.want)
		}
	}
	wire := codec(t, serializer.Wire{})
	if err := wire.Open("q", &task.Envelope{ContentType: "application/ld+json"}); err != nil {
		t.Errorf("a type of its own: %v", err)
	}
}

// TestContentEncoding decodes a message of a foreign writer whose whole body is compressed.
func TestContentEncoding(t *testing.T) {
	plain := []byte(`{"task":"add","args":[1,2],"correlation":"` + strings.Repeat("some words ", 100) + `"}`)
	body, err := new(compress.Gzip).Compress(plain)
	if err != nil {
		t.Fatal(err)
	}
	m := &broker.Message{ID: "i", ContentType: serializer.ContentJSON, Body: body, Properties: map[string]string{"content-encoding": "gzip", "x": "y"}}
	for name, config := range map[string]serializer.Wire{"not configured": {}, "configured": {Compression: gzipOrS2()}} {
		e, _, err := codec(t, config).Decode(m)
		if err != nil || e.Name != "add" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	m.Properties["content-encoding"] = "br"
	if _, _, err := codec(t, serializer.Wire{}).Decode(m); !errors.Is(err, serializer.ErrUnknownType) {
		t.Errorf("known to nobody: %v", err)
	}
	m.Properties["content-encoding"] = "gzip"
	if m.Properties["content-encoding"] != "gzip" || !bytes.Equal(m.Body, body) {
		t.Error("the message was changed")
	}
	if _, _, err := codec(t, serializer.Wire{Compression: gzipOrS2(), MaxBody: len(plain) - 1}).Decode(m); !errors.Is(err, serializer.ErrTooLarge) {
		t.Errorf("larger than a message may be: %v", err)
	}
}

func TestProtectionIsChecked(t *testing.T) {
	for name, c := range map[string]serializer.Compression{
		"nil":            {Compressors: []serializer.Compressor{nil}},
		"twice":          {Compressors: []serializer.Compressor{compress.S2{}, compress.S2{}}},
		"unknown":        {Compressors: []serializer.Compressor{compress.S2{}}, Use: "gzip"},
		"negative":       {MaxRatio: -1},
		"a bad name":     {Compressors: []serializer.Compressor{named("S 2")}},
		"a taken name":   {Compressors: []serializer.Compressor{named("sealed")}},
		"a foreign name": {Compressors: []serializer.Compressor{named("json")}},
	} {
		if _, err := New(serializer.Wire{Compression: c}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// compressors that are only for reading are not used for writing
	c := codec(t, serializer.Wire{Compression: gzipOrS2()})
	if err := errors.Join(c.CheckCompression(""), c.CheckCompression("s2")); err != nil {
		t.Error(err)
	}
	if err := c.CheckCompression("zstd"); !errors.Is(err, task.ErrBadMetadata) {
		t.Error(err)
	}
	if err := codec(t, serializer.Wire{}).CheckCompression("s2"); !errors.Is(err, task.ErrBadMetadata) {
		t.Error(err)
	}
}

type compressor = compress.S2

type renamed struct {
	compressor
	name string
}

func (r renamed) Name() string { return r.name }

func named(name string) serializer.Compressor { return renamed{name: name} }

// TestOffCostsNothing shows that without protection, opening and protecting allocate no memory.
func TestOffCostsNothing(t *testing.T) {
	c := codec(t, serializer.Wire{})
	e := chained()
	r := resultstore.Record{ID: "i", State: task.StateSucceeded, ContentType: serializer.ContentMsgpack}
	if n := testing.AllocsPerRun(100, func() {
		if c.Open("q", e) != nil || c.ProtectRecord(&r, task.Opt[string]{}) != nil || c.OpenRecord(&r) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
