package hworkerbroker_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
)

// TestAnyMessageMakesTheRoundTrip shows that the payload of any message is JSON of the published
// form, and decodes to the same message.
func TestAnyMessageMakesTheRoundTrip(t *testing.T) {
	bodies := rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "{}", "{ }", "{\n}", " {}", "{} ", `{"a":1}`, `{ "a" : 1 }`, `{"swj":{"id":"x"}}`, `{"swj":1,"a":2}`, `{"a":1,"swj":3}`, "[1]", `"x"`,
			"null", "1e400", "{", `{"task":"t","id":"own"}`, `{"task":"t","id":7}`, `{"task":"t","ID":"x"}`, "\xff", `"` + "\xff" + `"`, "nul\x00l",
			strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		}),
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	)
	values := rapid.OneOf(
		rapid.Map(rapid.String(), func(v string) any { return v }), rapid.Map(rapid.Bool(), func(v bool) any { return v }),
		rapid.Map(rapid.Int64(), func(v int64) any { return v }), rapid.Map(rapid.Float64(), func(v float64) any { return v }),
		rapid.SampledFrom([]any{math.NaN(), math.Inf(1), 2.0}), rapid.Map(rapid.SliceOf(rapid.Byte()), func(v []byte) any { return v }),
	)
	rapid.Check(t, func(t *rapid.T) {
		m := &broker.Message{
			ID:          rapid.SampledFrom([]string{"own", "other", "a b", "ü"}).Draw(t, "id"),
			Generation:  rapid.SampledFrom([]int{0, 0, 1, math.MaxInt32}).Draw(t, "generation"),
			ContentType: rapid.SampledFrom([]string{"application/json", "", "text/plain"}).Draw(t, "type"),
			Headers:     rapid.MapOfN(rapid.String(), values, 0, 3).Draw(t, "headers"),
			Properties:  rapid.MapOfN(rapid.String(), rapid.String(), 0, 2).Draw(t, "properties"),
			Body:        []byte(bodies.Draw(t, "body")),
			Priority:    rapid.SampledFrom([]int{100, 0, 1 << 20}).Draw(t, "priority"),
			Expires:     rapid.SampledFrom([]time.Time{{}, time.UnixMilli(1_900_000_000_123).UTC()}).Draw(t, "expires"),
		}
		payload, err := hworkerbroker.Encode(m)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		var parts []json.RawMessage
		if err := json.Unmarshal([]byte(payload), &parts); err != nil || len(parts) != 2 {
			t.Fatalf("%q is no payload: %v", payload, err)
		}
		got, err := hworkerbroker.Decode(payload)
		if err != nil {
			t.Fatalf("decode %q: %v", payload, err)
		}
		if diff := cmp.Diff(m, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("payload %q\n-sent +received:\n%s", payload, diff)
		}
	})
}

func TestTextThatJSONWouldChangeIsRefused(t *testing.T) {
	for name, m := range map[string]*broker.Message{
		"id": {ID: "\xff"}, "content type": {ContentType: "\xff"}, "header": {Headers: map[string]any{"h": "\xff"}},
		"header's name": {Headers: map[string]any{"\xff": 1}}, "property": {Properties: map[string]string{"p": "\xff"}},
		"generation": {Generation: -1}, "header's type": {Headers: map[string]any{"h": 1}},
	} {
		if _, err := hworkerbroker.Encode(m); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

// FuzzDecode shows that no payload in a list causes a panic or decodes to a message that cannot be
// encoded.
func FuzzDecode(f *testing.F) {
	for _, p := range []string{
		`["u",{"swj":{"headers":{"a":{"float":"1"}}},"x":1}]`, `["u",{"swj":{}}]`, `["u",{"swj":{},}]`, `["u",{"swj":null}]`, `[null,1]`, `["u",{"swj":{"base64":true},"body":"aGk="} ]`,
		`["u {\"swj\":{\"generation\":1}}",5]`, `["u {\"swj\":{}",{}]`, `[" {\"swj\":{\"id\":\"x\",\"base64\":true}}",{}]`,
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		m, err := hworkerbroker.Decode(payload)
		if err != nil {
			return
		}
		again, err := hworkerbroker.Encode(m)
		if errors.Is(err, broker.ErrMalformed) {
			return // a text that is not UTF-8
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := hworkerbroker.Decode(again)
		if err != nil || string(got.Body) != string(m.Body) || got.Generation != m.Generation {
			t.Fatalf("%q became %q: %+v, %v", payload, again, got, err)
		}
	})
}

// TestRetriesOfOlderVersionsAreRead shows that retries of older versions, whose id and number are
// inside the job, can be read.
func TestRetriesOfOlderVersionsAreRead(t *testing.T) {
	const swj = `{"swj":{"id":"u1","generation":2,"content_type":"application/octet-stream"`
	for payload, body := range map[string]string{
		`["c9890f4e-80de-4bfe-9869-d3a3d9ff8a37",` + swj + `},"to":"a"}]`:                                        `{"to":"a"}`,
		`["50b6d0ce-10ba-413f-b81a-96276faf55ee",` + swj + `,"base64":true},"body":"WyJhIix7ImIiOlsxLjUwXX1d"}]`: `["a",{"b":[1.50]}]`,
	} {
		m, err := hworkerbroker.Decode(payload)
		if err != nil || m.ID != "u1" || m.Generation != 2 || m.ContentType != "application/octet-stream" || string(m.Body) != body {
			t.Errorf("%s is read as %+v, %v", payload, m, err)
		}
	}
}
