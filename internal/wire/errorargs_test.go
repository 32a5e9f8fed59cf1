package wire

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// goldenRelatives is a record with the keys for an error of another language and for the tasks
// around it. It never changes.
const goldenRelatives = "de0009" + "0001" + "01a5" + "7461736b31" + "03a6" + "6661696c6564" + "09a2" + "4b45" +
	"18a8" + "6275696c74696e73" + "1994" + "a161" + "cb4000000000000000" + "02" + "c0" + "1aa1" + "70" + "1ba1" + "67" + "1c92" + "a163" + "a164"

func TestGoldenRelatives(t *testing.T) {
	want := resultstore.Record{
		ID: "task1", State: task.StateFailed, Error: &task.RemoteError{Type: "KE", Module: "builtins", Args: []any{"a", 2.0, int64(2), nil}},
		Parent: "p", Group: "g", Children: []task.ID{"c", "d"},
	}
	data, err := EncodeRecord(&want)
	if err != nil || hex.EncodeToString(data) != goldenRelatives {
		t.Errorf("written as\n%x, golden is\n%s; %v", data, goldenRelatives, err)
	}
	golden, _ := hex.DecodeString(goldenRelatives)
	got, err := DecodeRecord(golden)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("read as something else (-want +got), %v:\n%s", err, d)
	}
}

// TestErrorArgsBeyondLimits shows that too many, too large and unknown values are left out, and
// that the rest of the error stays.
func TestErrorArgsBeyondLimits(t *testing.T) {
	deep := any("x")
	for range maxErrorArgsDepth {
		deep = []any{deep}
	}
	for name, args := range map[string][]any{
		"too many": make([]any, task.MaxErrorArgs+1), "too large": {strings.Repeat("x", maxErrorArgsSize)}, "too deep": {deep},
		"an unknown type": {struct{}{}}, "a text that is not UTF-8": {"\xff"}, "a key that is not UTF-8": {map[string]any{"\xff": nil}},
	} {
		data, err := EncodeRecord(&resultstore.Record{ID: "t", State: task.StateFailed, Error: &task.RemoteError{Type: "T", Message: "m", Args: args}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := DecodeRecord(data)
		if err != nil || got.Error.Message != "m" || got.Error.Args != nil {
			t.Errorf("%s: read as %+v, %v", name, got.Error, err)
		}
	}
}

// TestForeignErrorArgs shows that values of another writer are left out if a limit or the type does
// not fit.
func TestForeignErrorArgs(t *testing.T) {
	for name, value := range map[string][]byte{
		"no array":        rawmsgpack.AppendText(nil, "x"),
		"too many":        append(rawmsgpack.AppendArrayLen(nil, 17), make([]byte, 17)...),
		"a 32-bit float":  append(rawmsgpack.AppendArrayLen(nil, 1), 0xca, 0, 0, 0, 0),
		"a key that is 1": append(rawmsgpack.AppendArrayLen(nil, 1), 0x81, 1, 1),
	} {
		data, err := EncodeRecord(&resultstore.Record{ID: "t", State: task.StateFailed, Error: &task.RemoteError{Type: "T"}})
		if err != nil {
			t.Fatal(err)
		}
		data[2]++
		got, err := DecodeRecord(append(append(data, recordKeyErrorArgs), value...))
		if err != nil || got.Error.Type != "T" || got.Error.Args != nil {
			t.Errorf("%s: read as %+v, %v", name, got.Error, err)
		}
	}
}

// TestChildren shows which tasks follow a success at once.
func TestChildren(t *testing.T) {
	e := &task.Envelope{ID: "e", Then: []task.Link{
		{ID: "one", Then: []task.Link{{ID: "later"}}},
		{Name: "derived"},
		{ID: "g", Members: []task.Link{{ID: "m0"}, {Name: "derived"}}, Chord: &task.Link{ID: "body"}},
		{ID: "map", Each: true, Members: []task.Link{{Name: "each"}}},
	}}
	want := []task.ID{"one", task.Derive("e", "then1"), "m0", MemberID("g", 1)}
	if d := cmp.Diff(want, Children(e, task.StateSucceeded)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := Children(e, task.StateFailed); got != nil {
		t.Errorf("after a failure: %v", got)
	}
	e.Then = []task.Link{{ID: "g", Members: make([]task.Link, 1000)}}
	if n := len(Children(e, task.StateSucceeded)); n != resultstore.MaxChildren {
		t.Errorf("%d of 1,000", n)
	}
}
