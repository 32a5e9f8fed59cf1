package wire

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// goldenCheckpoints are checkpoints as version 1 writes them. They never change: stores keep them
// for weeks.
const goldenCheckpoints = "95" + "01" + "ce00100000" + "03" + "93" + "a161" + "a0" + "c400" + "93" + "a6636861726765" + "aa746578742f706c61696e" + "c40137"

// TestGoldenCheckpoints shows that the stored form does not change.
func TestGoldenCheckpoints(t *testing.T) {
	golden, err := hex.DecodeString(goldenCheckpoints)
	if err != nil {
		t.Fatal(err)
	}
	want := &Checkpoints{Generation: 1 << 20, Deliveries: 3, Values: []resultstore.Checkpoint{
		{Name: "a"}, {Name: "charge", ContentType: "text/plain", Value: []byte("7")},
	}}
	if data := want.Encode(); hex.EncodeToString(data) != goldenCheckpoints {
		t.Errorf("written as\n%x, golden is\n%s", data, goldenCheckpoints)
	}
	got, err := DecodeCheckpoints(golden)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("%v (-want +read):\n%s", err, diff)
	}
	one, err := DecodeCheckpoint(golden[len(golden)-22:])
	if diff := cmp.Diff(want.Values[1], one); diff != "" || err != nil {
		t.Errorf("one checkpoint: %v (-want +read):\n%s", err, diff)
	}
}

// TestMalformedCheckpoints shows that other data is ErrMalformed.
func TestMalformedCheckpoints(t *testing.T) {
	for _, data := range []string{
		"", "\x90", "\x92\x01\x00", "\x93\x02\x00\x00", "\x94\x01\x00\x00\x92\xa1a\xa0", "\x94\x01\x00\x00\x93\xa0\xa0\xc4\x00",
		"\x94\x01\x00\x00\x93\xa1a\xa0\xa1x", "\x93\x01\x00\x00\x00", "\xdc\x00\x44\x01\x00\x00" + strings.Repeat("\x93\xa1a\xa0\xc4\x00", 65),
	} {
		if s, err := DecodeCheckpoints([]byte(data)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("%x was read as %+v, %v", data, s, err)
		}
	}
}

// TestSealedCheckpoints shows that a seal is bound to the task and to the name, and that a result
// is not a checkpoint.
func TestSealedCheckpoints(t *testing.T) {
	c, err := New(serializer.Wire{Sealer: sealer(t, key("k", false))})
	if err != nil {
		t.Fatal(err)
	}
	stored := resultstore.Checkpoint{Name: "a", ContentType: serializer.ContentJSON, Value: []byte(`"secret"`)}
	if err := c.ProtectCheckpoint("t", &stored, task.Opt[string]{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored.Value), "secret") {
		t.Errorf("stored as %q", stored.Value)
	}
	result := resultstore.Record{ID: "t", State: task.StateSucceeded, ContentType: serializer.ContentJSON, Result: []byte(`1`)}
	if err := c.ProtectRecord(&result, task.Opt[string]{}); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"another name": func() error {
			moved := stored
			moved.Name = "b"
			return c.OpenCheckpoint("t", &moved)
		},
		"another task": func() error { moved := stored; return c.OpenCheckpoint("u", &moved) },
		"a result as a checkpoint": func() error {
			return c.OpenCheckpoint("t", &resultstore.Checkpoint{Name: "a", ContentType: result.ContentType, Value: result.Result})
		},
		"a checkpoint as a result": func() error {
			return c.OpenRecord(&resultstore.Record{ID: "t", State: task.StateSucceeded, ContentType: stored.ContentType, Result: stored.Value})
		},
	} {
		if err := open(); !errors.Is(err, serializer.ErrForged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	plain := resultstore.Checkpoint{Name: "a", ContentType: serializer.ContentJSON, Value: []byte(`1`)}
	if err := c.OpenCheckpoint("t", &plain); !errors.Is(err, serializer.ErrNotSealed) {
		t.Errorf("a value without a seal: %v", err)
	}
	if err := c.OpenCheckpoint("t", &stored); err != nil || string(stored.Value) != `"secret"` {
		t.Errorf("opened as %q, %v", stored.Value, err)
	}
}

func FuzzCheckpoints(f *testing.F) {
	golden, err := hex.DecodeString(goldenCheckpoints)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	for _, s := range []string{"", "\x90", "\xdd\xff\xff\xff\xff", strings.Repeat("\x91", 100), "\x94\x01\x00\x00\x93\xa1a\xa0\xc4\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := DecodeCheckpoints(data)
		if err != nil {
			return
		}
		second, err := DecodeCheckpoints(first.Encode())
		if d := cmp.Diff(first, second, cmpopts.EquateEmpty()); d != "" || err != nil {
			t.Errorf("%x changed when it was written: %v\n%s", data, err, d)
		}
	})
}
