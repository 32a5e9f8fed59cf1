package rules

import (
	"math/big"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"pgregory.net/rapid"
)

// TestMergePatch contains the examples of RFC 7386 with objects.
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
