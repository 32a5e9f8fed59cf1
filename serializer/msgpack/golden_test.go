package msgpack

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// The golden files are messages of version 1. They never change: if one did, running consumers
// could not read new tasks. A new version adds files.
var writeGolden = flag.Bool("write-golden", false, "write golden files that do not exist yet")

// everything returns a task with all fields set.
func everything(tb testing.TB) *task.Envelope {
	at := time.UnixMilli(1760000000123).UTC()
	e := addEnvelope(tb)
	e.Root, e.Parent, e.Group, e.GroupIndex = "order-17", "01920f4e-7a3b-7cc1-9b0e-aaaaaaaaaaaa", "group!", 300
	e.Retries, e.Crashes, e.Parked = 1, 2, 3
	e.ReplyTo, e.Correlation = "elsewhere", "c-1 é"
	e.Headers = map[string]string{"tenant": "a", "trace": "b"}
	e.Meta = task.Metadata{
		Queue: task.Set("q.high"), MaxRetries: task.Set(-1), RetryDelay: task.Set(1500 * time.Millisecond), RateLimit: task.Set("10/s"),
		TimeLimit: task.Set(time.Minute), SoftTimeLimit: task.Set(time.Duration(0)), IgnoreResult: task.Set(true), Idempotent: task.Set(false),
		Serializer: task.Set(serializer.ContentJSON), ResultStore: task.Set("archive"), ResultTTL: task.Set(time.Hour),
		Priority: task.Set(0), NotBefore: task.Set(at.Add(time.Second)), Expires: task.Set(time.Time{}),
	}
	e.Base = &task.Metadata{MaxRetries: task.Set(5), Serializer: task.Set("application/x-own")}
	e.Then = []task.Link{
		{ID: "next-1", Queue: "q", Name: "next", Then: []task.Link{{ID: "01920f4e-7a3b-7cc1-9b0e-bbbbbbbbbbbb", Queue: "q", Name: "last"}}},
		{Name: "beside", Feed: task.FeedInto, Field: "sum", ContentType: serializer.ContentMsgpack, Args: []byte{0x80}, Meta: task.Metadata{TimeLimit: task.Set(time.Second)}},
	}
	e.Else = []task.Link{{Name: "on-error", Feed: task.FeedNone}}
	e.Chord = &task.Link{Name: "gather", Feed: task.FeedPrepend}
	return e
}

func TestGolden(t *testing.T) {
	bare := addEnvelope(t)
	bare.ID, bare.Name, bare.ContentType, bare.Args, bare.Origin, bare.ReplyTo, bare.SentAt = "", "", "", nil, "", "", time.Time{}
	requeued := addEnvelope(t)
	requeued.Retries, requeued.Life = 1, 2
	steps := addEnvelope(t)
	steps.Then = []task.Link{{
		Name: "next", Queue: "q", Headers: map[string]string{"import": "42", "empty": ""}, Without: []string{"only-first", "é"}, Correlation: task.Set("c-2"),
		Then: []task.Link{{Name: "last", Queue: "q", Without: []string{"import"}, Correlation: task.Set("")}},
	}}
	for name, e := range map[string]*task.Envelope{"add": addEnvelope(t), "everything": everything(t), "bare": bare, "requeued": requeued, "steps": steps} {
		m, err := Compact{}.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		want := golden(t, "compact-v1-"+name, m.Body)
		if !bytes.Equal(m.Body, want) {
			t.Errorf("%s is written as\n%x, the golden file has\n%x", name, m.Body, want)
		}
		got, err := Compact{}.Decode(&broker.Message{ContentType: serializer.ContentCompact, Body: want})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := diffEnvelopes(e, got); d != "" {
			t.Errorf("%s is read as something else (-want +got):\n%s", name, d)
		}
	}
}

// TestGoldenOfNewerWriter shows that unknown fields are kept and sent with a retry.
func TestGoldenOfNewerWriter(t *testing.T) {
	m, err := Compact{}.Encode(everything(t))
	if err != nil {
		t.Fatal(err)
	}
	head := 3 // 0xde and the number of pairs
	newer := append([]byte{0xde, 0, m.Body[2] + 3}, m.Body[head:]...)
	// the version
	newer[head+1] = 2
	// unknown metadata
	newer = rawmsgpack.AppendText(append(newer, 60), "zstd")
	// nested
	newer = append(append(newer, 21), 0x82, 0x01, 0x93, 0xc0, 0xc2, 0x01, 0xa1, 'k', 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0)
	newer = rawmsgpack.AppendBytes(append(newer, 127), []byte{0, 0xff})
	newer = golden(t, "compact-v2-newer", newer)

	got, err := Compact{}.Decode(&broker.Message{ContentType: serializer.ContentCompact, Body: newer})
	if err != nil {
		t.Fatalf("a message of a newer writer: %v", err)
	}
	want := everything(t)
	want.Version, want.Unknown = 2, got.Unknown
	if d := diffEnvelopes(want, got); d != "" {
		t.Errorf("what is known is read as something else (-want +got):\n%s", d)
	}
	if len(got.Unknown) == 0 || got.Unknown[0] != 0x83 {
		t.Fatalf("Unknown is %x, want a map of 3 pairs", got.Unknown)
	}
	got.Retries++
	retry, err := Compact{}.Encode(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Compact{}.Decode(retry)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Unknown, got.Unknown) || again.Retries != got.Retries || again.Version != 2 {
		t.Errorf("after a retry Unknown is %x, version %d; want %x, 2", again.Unknown, again.Version, got.Unknown)
	}
	// Unknown data of another format must be dropped without damaging the message.
	got.Unknown = []byte(`{"compression":"zstd"}`)
	foreign, err := Compact{}.Encode(got)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := (Compact{}).Decode(foreign); err != nil || len(e.Unknown) > 0 {
		t.Errorf("with another format's unknown fields: %v, %v", e, err)
	}
}

func diffEnvelopes(a, b *task.Envelope) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.AllowUnexported(
		task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{}))
}

// golden returns the bytes of a golden file, which is hexadecimal in lines of 32 bytes.
func golden(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if _, err := os.Stat(path); os.IsNotExist(err) && *writeGolden {
		var b strings.Builder
		for i := 0; i < len(now); i += 32 {
			b.WriteString(hex.EncodeToString(now[i:min(i+32, len(now))]) + "\n")
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
