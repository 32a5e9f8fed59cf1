package serializertest

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestFormat tests f against each sentence of the port.
func TestFormat(t *testing.T, f serializer.Format) {
	t.Helper()
	runCases(t, f, []testCase[serializer.Format]{
		{
			"content type",
			"ContentType is the content type of the messages that Encode makes: readers choose the format by it.",
			func(t *testing.T, f serializer.Format) {
				m := encode(t, f, example())
				if f.ContentType() == "" || m.ContentType != f.ContentType() {
					t.Errorf("ContentType() is %q, the message has %q", f.ContentType(), m.ContentType)
				}
			},
		},
		{
			"message fields",
			"Encode sets ID, Priority (100 when no metadata set it, the call over the producer's configuration), Key, Weight and Expires: " +
				"brokers order and drop messages by them without reading the body. Generation is the caller's.",
			testMessageFields,
		},
		{
			"round trip",
			"A task must arrive as it was sent, in every field; a consumer sends a retry from what it read.",
			func(t *testing.T, f serializer.Format) {
				rapid.Check(t, func(t *rapid.T) {
					e := Envelopes().Draw(t, "envelope")
					roundTrip(t, f, e)
				})
			},
		},
		{
			"explicit zeros",
			"A key set to 0, false or \"\" overrides lower layers; it must not read back as unset.",
			func(t *testing.T, f serializer.Format) {
				e := example()
				e.Meta = zeroes()
				e.Base = &task.Metadata{Idempotent: task.Set(false)}
				roundTrip(t, f, e)
			},
		},
		{
			"version 0",
			"Version 0 is written as EnvelopeVersion, so that code which builds envelopes need not know the number.",
			func(t *testing.T, f serializer.Format) {
				e := example()
				e.Version = 0
				if got := decode(t, f, encode(t, f, e)); got.Version != task.EnvelopeVersion {
					t.Errorf("version %d, want %d", got.Version, task.EnvelopeVersion)
				}
			},
		},
		{
			"root equal to id",
			"A task that is its own root stays its own root, however it was said.",
			func(t *testing.T, f serializer.Format) {
				e := example()
				e.Root = e.ID
				if got := decode(t, f, encode(t, f, e)); got.RootID() != e.ID {
					t.Errorf("root %q, want %q", got.RootID(), e.ID)
				}
			},
		},
		{
			"parts of milliseconds",
			"Wire times are whole milliseconds: a duration is rounded up, so that a limit below 1 ms does not become none.",
			func(t *testing.T, f serializer.Format) {
				e := example()
				e.Meta.TimeLimit = task.Set(time.Nanosecond)
				e.Meta.RetryDelay = task.Set(1500 * time.Microsecond)
				got := decode(t, f, encode(t, f, e))
				if d := got.Meta.TimeLimit.Or(0); d != time.Millisecond {
					t.Errorf("a time limit of 1 ns became %v, want 1ms", d)
				}
				if d := got.Meta.RetryDelay.Or(0); d != 2*time.Millisecond {
					t.Errorf("a delay of 1.5 ms became %v, want 2ms", d)
				}
			},
		},
		{
			"beyond the range",
			"Moments and durations outside the port's range are cut to it, never wrapped around.",
			func(t *testing.T, f serializer.Format) {
				e := example()
				e.SentAt = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
				e.Meta.Expires = task.Set(time.Date(250000, 1, 1, 0, 0, 0, 0, time.UTC))
				e.Meta.TimeLimit = task.Set(time.Duration(math.MaxInt64))
				got := decode(t, f, encode(t, f, e))
				if y := got.SentAt.Year(); y != 1970 {
					t.Errorf("the year 1900 became %d, want 1970", y)
				}
				if y := got.Meta.Expires.Or(time.Time{}).Year(); y != 9998 {
					t.Errorf("the year 250000 became %d, want 9998", y)
				}
				if d := got.Meta.TimeLimit.Or(0); d != task.MaxTimeLimit {
					t.Errorf("the longest duration became %v, want %v", d, task.MaxTimeLimit)
				}
			},
		},
		{
			"same bytes",
			"The same envelope gives the same message each time, so that a repeated publish is the same message.",
			func(t *testing.T, f serializer.Format) {
				e := full()
				first := encode(t, f, e)
				for range 20 {
					if diff := cmp.Diff(first, encode(t, f, e), cmpopts.EquateEmpty()); diff != "" {
						t.Fatalf("two encodings differ:\n%s", diff)
					}
				}
			},
		},
		{
			"changes nothing",
			"Encode leaves the envelope, and Decode the message, as it was: the caller still uses both.",
			testChangesNothing,
		},
		{
			"without id and name",
			"A message without a task id or name gives an envelope without them; the consumer knows its queue's task.",
			func(t *testing.T, f serializer.Format) {
				e := example()
				e.ID, e.Name = "", ""
				m := encode(t, f, e)
				if got := decode(t, f, m); got.ID != "" || got.Name != "" {
					t.Errorf("id %q and name %q, want none", got.ID, got.Name)
				}
				m.ID = "given-by-the-broker"
				if got := decode(t, f, m); got.ID != "given-by-the-broker" {
					t.Errorf("id %q, want the message's", got.ID)
				}
			},
		},
		{
			"messages of others",
			"ErrNotMine lets the next format try. A format may instead take a foreign message as raw work: no name, the body as it is.",
			testOthers,
		},
		{
			"content encoding",
			"A body that is compressed or sealed by somebody else must not be read as it is; it is never unpacked here.",
			func(t *testing.T, f serializer.Format) {
				m := encode(t, f, example())
				m.Properties = map[string]string{"content-encoding": "gzip"}
				if _, err := f.Decode(m); !errors.Is(err, serializer.ErrUnknownType) {
					t.Errorf("a message with content-encoding gzip gave %v, want ErrUnknownType", err)
				}
				m.Properties["content-encoding"] = "identity"
				if _, err := f.Decode(m); err != nil {
					t.Errorf("content-encoding identity means that nothing was done, but gave %v", err)
				}
			},
		},
		{
			"cut at every byte",
			"Half a message must be refused, at whatever byte it was cut.",
			testTruncated,
		},
		{
			"flipped bits",
			"Damage must never end the process, and what is read in spite of it must be fit to be written again.",
			testFlipped,
		},
		{
			"hostile inputs",
			"A few bytes must not take the memory or the stack of the process.",
			testHostile,
		},
		{
			"bad names and ids",
			"Encode refuses what Decode would refuse: better an error at the producer than a dead letter.",
			testBadNames,
		},
		{
			"bad name on the wire",
			"A forged name must not reach a handler's table, a log or a key: ErrMalformed and task.ErrBadName.",
			testForgedName,
		},
		{
			"too much",
			"Headers and links are bounded: 1,000 entries and 64 KiB of headers, 1,000 links; negative counts are refused.",
			testTooMuch,
		},
		{
			"concurrent use",
			"Formats are stateless and may be used from any goroutine.",
			func(t *testing.T, f serializer.Format) {
				concurrently(t, func(i int) {
					for n := range 50 {
						e := full()
						e.Retries = i*1000 + n
						m, err := f.Encode(e)
						if err != nil {
							t.Errorf("Encode: %v", err)
							return
						}
						if got, err := f.Decode(m); err != nil || got.Retries != e.Retries {
							t.Errorf("Decode gave %v, %v", got, err)
							return
						}
					}
				})
			},
		},
	})
}

// fataler has the common methods of *testing.T and *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// encode returns the message of e and fails t if Encode returns an error.
func encode(t fataler, f serializer.Format, e *task.Envelope) *broker.Message {
	t.Helper()
	m, err := f.Encode(e)
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return m
}

// decode returns the envelope of m and fails t if Decode returns an error.
func decode(t fataler, f serializer.Format, m *broker.Message) *task.Envelope {
	t.Helper()
	e, err := f.Decode(m)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	return e
}

// diff returns the differences between two envelopes, or "". Nil and empty lists are equal.
func diff(a, b *task.Envelope) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.AllowUnexported(
		task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{}))
}

// roundTrip fails t unless e is the same after Encode and Decode.
func roundTrip(t fataler, f serializer.Format, e *task.Envelope) {
	t.Helper()
	m := encode(t, f, e)
	got := decode(t, f, m)
	if d := diff(e, got); d != "" {
		t.Fatalf("the envelope changed on its way (-sent +read):\n%s\nmessage: %q %v", d, m.Body, m.Headers)
	}
}

// example returns a small, typical task.
func example() *task.Envelope {
	return &task.Envelope{
		Version: 1, ID: "01920f4e-7a3b-7cc1-9b0e-0123456789ab", Name: "good-task-name",
		ContentType: serializer.ContentJSON, Args: []byte(`[1,2]`),
		SentAt: time.UnixMilli(1760000000123).UTC(), Origin: "node-1", ReplyTo: "node-1",
	}
}

// full returns a task with all fields set.
func full() *task.Envelope {
	e := example()
	e.Root, e.Parent, e.Group, e.GroupIndex = "root-id", "parent-id", "01920f4e-7a3b-7cc1-9b0e-aaaaaaaaaaaa", 7
	e.Retries, e.Crashes, e.Parked = 1, 2, 3
	e.ReplyTo, e.Correlation = "node-2", "corr"
	e.Headers = map[string]string{"tenant": "a", "trace": "b", "x": "", "y": "z"}
	e.Meta = zeroes()
	e.Base = &task.Metadata{Queue: task.Set("base-queue"), Priority: task.Set(5)}
	e.Then = []task.Link{
		{Name: "next", ID: "next-id", Queue: "q", Then: []task.Link{{Name: "last"}}},
		{Name: "other", Feed: task.FeedInto, Field: "sum", ContentType: serializer.ContentJSON, Args: []byte(`{"a":1}`)},
	}
	e.Else = []task.Link{{Name: "on-error", Meta: task.Metadata{MaxRetries: task.Set(0)}}}
	e.Chord = &task.Link{Name: "gather", Feed: task.FeedPrepend}
	return e
}

// zeroes returns metadata with fields set to their zero values.
func zeroes() task.Metadata {
	return task.Metadata{
		Queue: task.Set("q"), MaxRetries: task.Set(0), RetryDelay: task.Set(time.Duration(0)), Retry: task.Set(""), RateLimit: task.Set(""),
		TimeLimit: task.Set(time.Duration(0)), SoftTimeLimit: task.Set(time.Duration(0)), IgnoreResult: task.Set(false),
		Idempotent: task.Set(false), Serializer: task.Set(""), ResultStore: task.Set(""), ResultTTL: task.Set(time.Duration(0)),
		Priority: task.Set(0), FairnessKey: task.Set(""), NotBefore: task.Set(time.Time{}), Expires: task.Set(time.Time{}),
	}
}

// testMessageFields expects that a message has the id, priority and expiry of its envelope, and no
// generation.
func testMessageFields(t *testing.T, f serializer.Format) {
	at := time.UnixMilli(1760000000123).UTC()
	for _, c := range []struct {
		name     string
		set      func(e *task.Envelope)
		priority int
		key      string
		weight   int
		expires  time.Time
	}{
		{"nothing set", func(*task.Envelope) {}, task.DefaultPriority, "", 0, time.Time{}},
		{"by the producer", func(e *task.Envelope) {
			e.Base = &task.Metadata{Priority: task.Set(7), FairnessKey: task.Set("k"), FairnessWeight: task.Set(9), Expires: task.Set(at)}
		}, 7, "k", 9, at},
		{"by the call, to 0", func(e *task.Envelope) {
			e.Base = &task.Metadata{Priority: task.Set(7), FairnessKey: task.Set("k"), FairnessWeight: task.Set(9), Expires: task.Set(at)}
			e.Meta.Priority, e.Meta.FairnessKey, e.Meta.FairnessWeight, e.Meta.Expires = task.Set(0), task.Set(""), task.Set(1), task.Set(time.Time{})
		}, 0, "", 1, time.Time{}},
	} {
		e := example()
		c.set(e)
		m := encode(t, f, e)
		if m.ID != string(e.ID) || m.Priority != c.priority || !m.Expires.Equal(c.expires) || m.Generation != 0 || m.Key != c.key || m.Weight != c.weight {
			t.Errorf("%s: message has key %q and weight %d, want %q and %d", c.name, m.Key, m.Weight, c.key, c.weight)
			t.Errorf("%s: message has id %q, priority %d, expires %v, generation %d; want %q, %d, %v, 0",
				c.name, m.ID, m.Priority, m.Expires, m.Generation, e.ID, c.priority, c.expires)
		}
	}
}

// testChangesNothing expects that Encode does not change the envelope, Decode does not change the
// message, and a second Decode returns the same.
func testChangesNothing(t *testing.T, f serializer.Format) {
	e := full()
	m := encode(t, f, e)
	if d := diff(full(), e); d != "" {
		t.Errorf("Encode changed the envelope:\n%s", d)
	}
	before := clone(m)
	first := decode(t, f, m)
	second := decode(t, f, m)
	if d := cmp.Diff(before, m); d != "" {
		t.Errorf("Decode changed the message:\n%s", d)
	}
	if d := diff(first, second); d != "" {
		t.Errorf("a second Decode gave something else:\n%s", d)
	}
}

// clone returns a copy of a message with its own body, headers and byte headers.
func clone(m *broker.Message) *broker.Message {
	c := *m
	c.Body = bytes.Clone(m.Body)
	if m.Headers != nil {
		c.Headers = make(map[string]any, len(m.Headers))
		for k, v := range m.Headers {
			if b, ok := v.([]byte); ok {
				v = bytes.Clone(b)
			}
			c.Headers[k] = v
		}
	}
	return &c
}
