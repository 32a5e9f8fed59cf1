package rules

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
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
		if got := string(With(Without([]byte(c.data), KeyCount), KeyCount, []byte("3"))); got != c.count {
			t.Errorf("%s with a count: %s", c.data, got)
		}
		if got := string(Without([]byte(c.data), KeyCount)); got != c.without {
			t.Errorf("%s without: %s", c.data, got)
		}
	}
	for data, want := range map[string]int{
		`{}`: 0, `{"retryAfterCount":7}`: 7, `{"retryAfterCount":7,"retryAfterCount":8}`: 8, `{"retryAfterCount":"7"}`: 0, `{"retryAfterCount":-1}`: 0,
		`{"retryAfterCount":1e3}`: 0, `{"retryAfterCount":99999999999999999999}`: 0, `{"retryAfterCount":null}`: 0, `{"x":{"retryAfterCount":4}}`: 0,
	} {
		if got := Retries([]byte(data)); got != want {
			t.Errorf("%s: %d", data, got)
		}
	}
}

// genObject draws JSON objects.
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

// TestEditingKeepsTheRest: what is taken out and put in concerns one member alone.
func TestEditingKeepsTheRest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := genObject(2).Draw(r, "object")
		data, err := json.MarshalIndent(m, " ", "\t")
		if err != nil {
			r.Fatal(err)
		}
		edited := With(Without(data, KeyCount), KeyCount, []byte("9"))
		m[KeyCount] = json.Number("9")
		if !json.Valid(edited) || !sameValue(tree(edited), any(tree(marshal(r, m)))) {
			r.Fatalf("%s became %s", data, edited)
		}
		back := Without(edited, KeyCount)
		delete(m, KeyCount)
		if !SameData(back, marshal(r, m)) || Retries(edited) != 9 {
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

// TestMergePatch has the examples of RFC 7386 whose target and patch are objects, or can be put into one.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"x":[1,2]}`, `{"x":{"a":"b","c":null}}`, `{"x":{"a":"b"}}`},
		{`{"n":1.10,"m":100000000000000000001}`, `{"o":1E5}`, `{"m":100000000000000000001,"n":1.10,"o":1E5}`},
	} {
		got, err := MergePatch([]byte(c[0]), []byte(c[1]))
		if err != nil || string(got) != c[2] {
			t.Errorf("%s and %s: %s, %v; want %s", c[0], c[1], got, err, c[2])
		}
	}
	deep := []byte(strings.Repeat(`{"a":`, 3000) + "{}" + strings.Repeat("}", 3000))
	if got, err := MergePatch(deep, deep); err != nil || !SameData(got, deep) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(r *rapid.T) {
		a, b := number.Draw(r, "a"), number.Draw(r, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if got, want := plainNumber(a) == plainNumber(b), x.Cmp(y) == 0; got != want {
			r.Fatalf("%s and %s are equal: %v", a, b, got)
		}
		if plainNumber(a) != plainNumber(a+"0") && strings.Contains(a, ".") && !strings.ContainsAny(a, "eE") {
			r.Fatalf("%s is not %s0", a, a)
		}
	})
	for _, c := range [][2]string{{"0", "-0"}, {"0e99999999999999999999", "0e99999999999999999999"}, {"100", "1e2"}, {"0.10", "1E-1"}} {
		if plainNumber(c[0]) != plainNumber(c[1]) {
			t.Errorf("%s is not %s", c[0], c[1])
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a\x00b": "ab", "a\xffb": "a\uFFFDb",
		strings.Repeat("ä", jobstore.MaxReason): strings.Repeat("ä", jobstore.MaxReason/2), "x" + strings.Repeat("ä", jobstore.MaxReason): "x" + strings.Repeat("ä", jobstore.MaxReason/2-1),
	} {
		if got := CutReason(in); got != want {
			t.Errorf("%.20q: %.20q of %d bytes", in, got, len(got))
		}
	}
}
