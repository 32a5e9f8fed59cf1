package wire

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
)

func TestKeptMessagesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string) string {
			return rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, label)
		}
		want := &broker.Message{
			ID: text("id"), Generation: rapid.IntRange(0, 1<<31-1).Draw(t, "generation"), ContentType: text("content type"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"), Priority: rapid.IntRange(-5, 300).Draw(t, "priority"),
			Key: rapid.String().Draw(t, "key"), Weight: rapid.IntRange(0, 100).Draw(t, "weight"),
		}
		if rapid.Bool().Draw(t, "expires") {
			want.Expires = time.UnixMilli(rapid.Int64Range(1, 253370764799999).Draw(t, "expires at")).UTC()
		}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			if want.Headers == nil {
				want.Headers = map[string]any{}
			}
			want.Headers[text("key")] = rapid.OneOf(
				rapid.Map(rapid.String(), func(s string) any { return s }),
				rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return b }),
				rapid.Map(rapid.Bool(), func(b bool) any { return b }),
				rapid.Map(rapid.Int64(), func(n int64) any { return n }),
				rapid.Map(rapid.Float64(), func(f float64) any { return f }),
				rapid.SampledFrom([]any{math.Inf(1), []byte(nil)}),
			).Draw(t, "value")
		}
		for range rapid.IntRange(0, 4).Draw(t, "properties") {
			if want.Properties == nil {
				want.Properties = map[string]string{}
			}
			want.Properties[text("key")] = text("value")
		}
		data, err := json.Marshal(Kept{want})
		if err != nil {
			t.Fatal(err)
		}
		var got Kept
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if d := cmp.Diff(want, got.Message, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("read as something else (-want +got):\n%s\n%s", d, data)
		}
	})
}

// Messages of version 1 are read forever, also with fields that a newer version adds.
func TestKeptMessageOfVersion1(t *testing.T) {
	const golden = `{"v":1,"id":"a-1","generation":2,"contentType":"application/json","headers":[{"key":"b","bool":true},{"key":"f","float":"1.5"},{"key":"n","int":"9007199254740993"},` +
		`{"key":"s","text":"x"},{"key":"y","bytes":"AP8="}],"properties":[{"key":"type","value":{"bytes":"/w=="}}],"body":"e30=","priority":0,"expiresMillis":1000}`
	want := &broker.Message{
		ID: "a-1", Generation: 2, ContentType: "application/json", Body: []byte("{}"), Expires: time.UnixMilli(1000).UTC(),
		Headers:    map[string]any{"b": true, "f": 1.5, "n": int64(9007199254740993), "s": "x", "y": []byte{0, 255}},
		Properties: map[string]string{"type": "\xff"},
	}
	data, err := json.Marshal(Kept{want})
	if err != nil || string(data) != golden {
		t.Errorf("written as\n%s\nwant\n%s\n%v", data, golden, err)
	}
	for _, given := range []string{golden, `{"new":[1],"v":2,` + golden[len(`{"v":1,`):]} {
		var got Kept
		if err := json.Unmarshal([]byte(given), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got.Message); d != "" {
			t.Errorf("read as something else (-want +got):\n%s", d)
		}
	}
}

func TestKeptMessagesThatAreNone(t *testing.T) {
	for _, given := range []string{
		`{}`, `{"v":0}`, `{"v":1,"body":"?"}`, `{"v":1,"headers":[{"key":"a"}]}`, `{"v":1,"headers":[{"key":"a","float":"x"}]}`, `{"v":1,"id":7}`,
	} {
		var k Kept
		if err := json.Unmarshal([]byte(given), &k); !errors.Is(err, serializer.ErrMalformed) {
			t.Errorf("%s: %v", given, err)
		}
	}
	if _, err := json.Marshal(Kept{&broker.Message{Headers: map[string]any{"a": 1}}}); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("a header of a type that no broker carries: %v", err)
	}
}
