package bedrock

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestEditing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, count, without string }{
		{`{}`, `{"retryAfterCount":3}`, `{}`},
		{` { } `, `{"retryAfterCount":3}`, ` { } `},
		{`{ "a" : [1, {"b": 2.50}] , "c":"\ud800" }`, `{"a" : [1, {"b": 2.50}],"c":"\ud800","retryAfterCount":3}`, `{ "a" : [1, {"b": 2.50}] , "c":"\ud800" }`},
		{`{"retryAfterCount":1,"a":1,"retryAfterCount":2}`, `{"a":1,"retryAfterCount":3}`, `{"a":1}`},
		{`{"a":{"retryAfterCount":1}}`, `{"a":{"retryAfterCount":1},"retryAfterCount":3}`, `{"a":{"retryAfterCount":1}}`},
		{`{"a":"retryAfterCount"}`, `{"a":"retryAfterCount","retryAfterCount":3}`, `{"a":"retryAfterCount"}`},
		{`{"a,:{}[]\"":"}","b":-1E+5}`, `{"a,:{}[]\"":"}","b":-1E+5,"retryAfterCount":3}`, `{"a,:{}[]\"":"}","b":-1E+5}`},
	} {
		if got := string(with(without([]byte(c.data), keyCount), keyCount, []byte("3"))); got != c.count {
			t.Errorf("%s with a count: %s", c.data, got)
		}
		if got := string(without([]byte(c.data), keyCount)); got != c.without {
			t.Errorf("%s without: %s", c.data, got)
		}
	}
}

// genObject generates JSON objects.
func genObject(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		m := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "retryAfterCount", "ä\n", ""}).Draw(t, "key")
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case kind == 0 && depth > 0:
				m[key] = genObject(depth-1).Draw(t, "object")
			case kind == 1:
				m[key] = nil
			case kind == 2:
				m[key] = []any{json.Number("1"), "x"}
			case kind == 3:
				m[key] = rapid.String().Draw(t, "text")
			default:
				m[key] = json.Number(rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "10e-1", "12345678901234567890", "1e400"}).Draw(t, "number"))
			}
		}
		return m
	})
}

// TestEditingKeepsTheRest shows that removing and adding a member leaves the others unchanged.
func TestEditingKeepsTheRest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := genObject(2).Draw(r, "object")
		data, err := json.MarshalIndent(m, " ", "\t")
		if err != nil {
			r.Fatal(err)
		}
		edited := with(without(data, keyCount), keyCount, []byte("9"))
		m[keyCount] = json.Number("9")
		if !json.Valid(edited) || !reflect.DeepEqual(numbers(r, edited), numbers(r, marshal(r, m))) {
			r.Fatalf("%s became %s", data, edited)
		}
		back := without(edited, keyCount)
		delete(m, keyCount)
		if !reflect.DeepEqual(numbers(r, back), numbers(r, marshal(r, m))) {
			r.Fatalf("%s became %s", edited, back)
		}
	})
}

func marshal(r *rapid.T, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		r.Fatal(err)
	}
	return data
}

// numbers decodes data with the original text of numbers.
func numbers(r *rapid.T, data []byte) (v any) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		r.Fatal(err)
	}
	return v
}
