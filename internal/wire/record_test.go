package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// goldenRecord is a record as version 1 writes it. It never changes: stores keep records for days.
const goldenRecord = "de0010" + "0001" + "01a5" + "7461736b31" + "02a3" + "616464" + "03a9" + "737563636565646564" +
	"0402" + "0503" + "0604" + "07b3" + "6170706c69636174696f6e2f6d73677061636b" + "08c401" + "03" +
	"09a0" + "0aa4" + "6f6f7073" + "0ccf00000199c82cc07b" + "0dcf00000199c82cc463" + "0ea1" + "6e" + "0fc3" + "10a1" + "63"

// goldenStep is a record of a task that did not run because of another task, in the form of version
// 1 with keys for that.
const goldenStep = "de0007" + "0001" + "01a5" + "7461736b31" + "03a6" + "6661696c6564" + "09a1" + "74" + "0aa4" + "6f6f7073" + "11a3" + "6f6464" + "12a2" + "7331"

func TestGoldenStep(t *testing.T) {
	golden, err := hex.DecodeString(goldenStep)
	if err != nil {
		t.Fatal(err)
	}
	want := resultstore.Record{
		ID: "task1", State: task.StateFailed, Error: &task.RemoteError{Type: "t", Message: "oops", Step: "odd", StepID: "s1"},
	}
	data, err := EncodeRecord(&want)
	if err != nil || !bytes.Equal(data, golden) {
		t.Errorf("written as\n%x, golden is\n%x; %v", data, golden, err)
	}
	got, err := DecodeRecord(golden)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("read as something else (-want +got), %v:\n%s", err, d)
	}
}

func wholeRecord() resultstore.Record {
	at := time.UnixMilli(1760000000123).UTC()
	return resultstore.Record{
		ID: "task1", Name: "add", State: task.StateSucceeded, Generation: 2, Deliveries: 3, Retries: 4,
		ContentType: "application/msgpack", Result: []byte{3}, Error: &task.RemoteError{Message: "oops"},
		StartedAt: at, FinishedAt: at.Add(time.Second), NodeID: "n", ReplyTo: "n", Correlation: "c",
	}
}

func TestGoldenRecord(t *testing.T) {
	golden, err := hex.DecodeString(goldenRecord)
	if err != nil {
		t.Fatal(err)
	}
	want := wholeRecord()
	data, err := EncodeRecord(&want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, golden) {
		t.Errorf("written as\n%x, golden is\n%x", data, golden)
	}
	got, err := DecodeRecord(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read as something else (-want +got):\n%s", d)
	}
}

// TestNewerRecord shows that fields of a newer writer are skipped.
func TestNewerRecord(t *testing.T) {
	want := wholeRecord()
	data, err := EncodeRecord(&want)
	if err != nil {
		t.Fatal(err)
	}
	data[2] += 2
	data[4] = 9                                                                        // its version
	data = append(data, 100, 0x81, 0xa1, 'x', 0x93, 1, 2, 0xc0, 127, 0xca, 0, 0, 0, 0) // its fields
	got, err := DecodeRecord(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read as something else (-want +got):\n%s", d)
	}
}

func records() *rapid.Generator[resultstore.Record] {
	return rapid.Custom(func(t *rapid.T) resultstore.Record {
		text := func(label string) string {
			if rapid.Bool().Draw(t, label+" is set") {
				return rapid.String().Draw(t, label)
			}
			return ""
		}
		moment := func(label string) time.Time {
			if rapid.Bool().Draw(t, label+" is set") {
				return time.UnixMilli(rapid.Int64Range(0, 253370764799999).Draw(t, label)).UTC()
			}
			return time.Time{}
		}
		count := rapid.IntRange(0, 1<<31-1)
		r := resultstore.Record{
			ID:   task.ID(rapid.StringMatching(`[!-~]{1,128}`).Draw(t, "id")),
			Name: text("name"),
			State: rapid.SampledFrom([]task.State{
				task.StatePending, task.StateStarted, task.StateRetrying, task.StateAwaiting, task.StateSucceeded, task.StateFailed, task.StateRevoked, task.StateExpired,
			}).Draw(t, "state"),
			Generation:  count.Draw(t, "generation"),
			Deliveries:  count.Draw(t, "deliveries"),
			Retries:     count.Draw(t, "retries"),
			ContentType: text("content type"),
			Result:      rapid.SliceOf(rapid.Byte()).Draw(t, "result"),
			StartedAt:   moment("started at"),
			FinishedAt:  moment("finished at"),
			NodeID:      text("node id"),
			ReplyTo:     text("reply to"),
			Correlation: text("correlation"), Life: rapid.IntRange(0, 1<<31-1).Draw(t, "life"),
		}
		if rapid.Bool().Draw(t, "progress") {
			r.Progress = task.ProgressValue{Done: rapid.IntRange(0, 1<<31-1).Draw(t, "done"), Total: rapid.IntRange(0, 1<<31-1).Draw(t, "total"), Note: rapid.StringN(0, -1, task.MaxProgressNote).Draw(t, "note"), At: moment("at")}
		}
		if rapid.Bool().Draw(t, "failed") {
			r.Error = &task.RemoteError{Type: text("type"), Message: text("message"), Stack: text("stack"), Step: text("step"), StepID: task.ID(text("step id")), Module: text("module")}
			if rapid.Bool().Draw(t, "args") {
				r.Error.Args = []any{rapid.String().Draw(t, "arg"), rapid.Int64().Draw(t, "number"), rapid.Float64().Draw(t, "float"), nil, map[string]any{"k": []any{true, []byte{1}}}}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "children") {
			r.Children = append(r.Children, task.ID(text("child")))
		}
		r.Parent, r.Group = task.ID(text("parent")), task.ID(text("group"))
		if rapid.Bool().Draw(t, "reply to itself") {
			r.ReplyTo = r.NodeID
		}
		return r
	})
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := records().Draw(t, "record")
		want.TTL = time.Hour
		data, err := EncodeRecord(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(data)
		if err != nil {
			t.Fatal(err)
		}
		want.TTL = 0 // TTL is not written
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("read as something else (-want +got):\n%s", d)
		}
		for i := range data {
			data[i] ^= 0xff
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("the record changed with the data it was read from:\n%s", d)
		}
	})
}

func TestEncodeRecordRefuses(t *testing.T) {
	for name, change := range map[string]func(r *resultstore.Record){
		"no id":               func(r *resultstore.Record) { r.ID = "" },
		"an id with a space":  func(r *resultstore.Record) { r.ID = "a b" },
		"no state":            func(r *resultstore.Record) { r.State = "" },
		"an unknown state":    func(r *resultstore.Record) { r.State = "done" },
		"generation -1":       func(r *resultstore.Record) { r.Generation = -1 },
		"deliveries -1":       func(r *resultstore.Record) { r.Deliveries = -1 },
		"retries -1":          func(r *resultstore.Record) { r.Retries = -1 },
		"a name of no text":   func(r *resultstore.Record) { r.Name = "\xff" },
		"a reply-to of bytes": func(r *resultstore.Record) { r.ReplyTo = "\xc3" },
	} {
		r := wholeRecord()
		change(&r)
		if data, err := EncodeRecord(&r); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("%s: got %x, %v; want ErrMalformed", name, data, err)
		}
	}
	// The texts of an error may be invalid. They are cut and made valid, so that the failure is not
	// lost.
	r := wholeRecord()
	r.Error = &task.RemoteError{Type: "T", Message: strings.Repeat("\xff", 10<<20), Stack: strings.Repeat("s", 1<<20)}
	data, err := EncodeRecord(&r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRecord(data)
	if err != nil || len(got.Error.Message) == 0 || len(got.Error.Message) > 3*task.MaxErrorText || len(got.Error.Stack) != task.MaxStack {
		t.Errorf("an error with 10 MB of text: %v, message of %d and stack of %d bytes", err, len(got.Error.Message), len(got.Error.Stack))
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	r := wholeRecord()
	whole, err := EncodeRecord(&r)
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string][]byte{
		"nothing": nil, "no map": {0x90}, "no id": {0x81, 3, 0xa6, 'f', 'a', 'i', 'l', 'e', 'd'}, "an empty map": {0x80},
		"a key twice": []byte("\x83\x01\xa1a\x03\xa6failed\x01\xa1b"), "a bad state": []byte("\x82\x01\xa1a\x03\xa3bad"),
		"version 0": []byte("\x83\x00\x00\x01\xa1a\x03\xa6failed"), "retries -1": []byte("\x83\x06\xff\x01\xa1a\x03\xa6failed"),
		"a result of text": []byte("\x83\x08\xa1a\x01\xa1a\x03\xa6failed"), "more behind it": append(bytes.Clone(whole), 0xc0),
		"2^32 elements": []byte("\xdd\xff\xff\xff\xff"), "2^31 pairs": []byte("\xdf\x7f\xff\xff\xff"),
		"nested": bytes.Repeat([]byte{0x91}, 2_000_000), "a chain": bytes.Repeat([]byte{0xdc, 0xff, 0xff}, 24_000),
	}
	for at := range whole {
		inputs["cut at "+string(rune('0'+at/10))+string(rune('0'+at%10))] = whole[:at]
	}
	for name, in := range inputs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := DecodeRecord(in)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("%s: got %+v, %v; want ErrMalformed", name, got, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s: %d bytes of memory", name, used)
		}
	}
}

// FuzzRecord shows that every record that can be read can be written, and then reads and writes the
// same.
func FuzzRecord(f *testing.F) {
	golden, err := hex.DecodeString(goldenRecord)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	for _, s := range []string{
		"", "\x80", "\x82\x01\xa1a\x03\xa6failed", "\xdd\xff\xff\xff\xff", "\xdf\x7f\xff\xff\xff", strings.Repeat("\x91", 100), "\x83\x06\xff\x01\xa1a\x03\xa6failed",
		"\x84\x01\xa1a\x03\xa6failed\x0a\xa1x\x0f\xc3",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := DecodeRecord(data)
		if err != nil {
			return
		}
		out, err := EncodeRecord(&first)
		if err != nil {
			t.Fatalf("%x was read and cannot be written: %v", data, err)
		}
		second, err := DecodeRecord(out)
		if err != nil {
			t.Fatalf("%x was read, written as %x, and cannot be read: %v", data, out, err)
		}
		if d := cmp.Diff(first, second, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%x reads differently after it was written:\n%s", data, d)
		}
	})
}

func BenchmarkEncodeRecord(b *testing.B) {
	r := wholeRecord()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeRecord(&r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	r := wholeRecord()
	data, err := EncodeRecord(&r)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRecord(data); err != nil {
			b.Fatal(err)
		}
	}
}
