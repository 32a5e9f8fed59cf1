package messagecode_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

func TestExtrasHoldKeyAndWeight(t *testing.T) {
	for _, m := range []*broker.Message{
		{},
		{Key: "k"},
		{Weight: 5},
		{Key: "k", Weight: 100, Headers: map[string]any{"a": "b", "n": int64(1)}, Properties: map[string]string{"type": "t"}},
	} {
		data, err := messagecode.AppendExtras(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		var got broker.Message
		if len(data) > 0 && !messagecode.DecodeExtras(data, &got) {
			t.Fatalf("the extras of %+v are damaged", m)
		}
		if d := cmp.Diff(m, &got); d != "" {
			t.Errorf("the extras of %+v:\n%s", m, d)
		}
	}
}

// TestKeyAndWeightComeFirst shows the place at which scripts of servers read them.
func TestKeyAndWeightComeFirst(t *testing.T) {
	data, err := messagecode.AppendExtras(nil, &broker.Message{Key: "k", Weight: 5, Headers: map[string]any{"a": "b"}})
	if want := "\x83\xa7swj-key\xa1k\xaaswj-weight\x05\xa1a\xa1b\x80"; err != nil || string(data) != want {
		t.Errorf("the extras are %q, %v; want %q", data, err, want)
	}
}

func TestReservedHeadersAreNotSent(t *testing.T) {
	data, err := messagecode.AppendExtras(nil, &broker.Message{Key: "k", Headers: map[string]any{"swj-weight": int64(7), "swj-key": true, "a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	var got broker.Message
	want := broker.Message{Key: "k", Headers: map[string]any{"a": "b"}}
	if ok := messagecode.DecodeExtras(data, &got); !ok || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, ok, want)
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	for _, m := range []*broker.Message{{ID: "a", Key: "a\nb"}, {ID: "a", Key: "\xff"}, {ID: "a", Weight: 101}, {ID: "a", Weight: -1}} {
		if err := messagecode.Check(m, 10); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("key %q, weight %d: %v", m.Key, m.Weight, err)
		}
	}
	var m broker.Message
	if messagecode.SetKey(&m, "a\nb", 101); m.Key != "" || m.Weight != 0 {
		t.Errorf("stored values that are not valid give key %q and weight %d", m.Key, m.Weight)
	}
}
