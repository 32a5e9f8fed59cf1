package serializer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestScanJSONAccepts(t *testing.T) {
	for _, in := range []string{
		`null`, `true`, `false`, `0`, `-0`, `-0.5e-3`, `1E+2`, `1e308`, `5e-324`, `1e-400`, `123456789012345678901234567890`,
		`""`, `"\u00e9\n\ud83d\ude00\/"`, `"é😀"`, `[]`, `{}`, ` [ 1 , [ ] , { } ] `, "\t{\r\n\"a\" : 1 }\n",
		`{"a":1,"A":2}`, `{"":1," ":2}`, `[{"a":1},{"a":1}]`, `{"a":{"a":{"a":1}}}`,
		strings.Repeat("[", MaxJSONDepth) + strings.Repeat("]", MaxJSONDepth),
	} {
		if err := ScanJSON([]byte(in)); err != nil {
			t.Errorf("%.60q: %v", in, err)
		}
		if !json.Valid([]byte(in)) {
			t.Errorf("%.60q is not valid JSON at all", in)
		}
	}
}

func TestScanJSONRefuses(t *testing.T) {
	for in, why := range map[string]error{
		``: errCut, ` `: errCut, `{`: errCut, `[1`: errCut, `[1,`: errCut, `{"a"`: errCut, `{"a":`: errCut, `{"a":1`: errCut,
		`{"a":1,`: errCut, `"a`: errCut, `"\`: errCut, `"\u12`: errCut, `tru`: errCut,
		`1 2`: errTrailing, `{}{}`: errTrailing, `null,`: errTrailing, `01`: errTrailing, `1]`: errTrailing,
		`[1 2]`: errSyntax, `[1}`: errSyntax, `{"a":1]`: errSyntax, `{1:2}`: errSyntax, `{"a" 1}`: errSyntax, `{"a":1,}`: errSyntax,
		`[1,]`: errSyntax, `[,1]`: errSyntax, `trux`: errSyntax, `NaN`: errSyntax, `Infinity`: errSyntax, `'a'`: errSyntax, "\x00": errSyntax,
		`+1`: errSyntax, `.5`: errSyntax,
		`-`: errNumber, `1.`: errNumber, `1e`: errNumber, `1e+`: errNumber, `-a`: errNumber,
		`1e309`: errRange, `-1e309`: errRange, `1e999999999`: errRange, `1e-99999999`: errRange, `1e00000000000000000000001001`: errRange,
		strings.Repeat("9", 400): errRange,
		"\"\x01\"":               errString, "\"\n\"": errString, `"\x"`: errString, `"\u12g4"`: errString,
		"\"\xff\"": errUTF8, "\"\xed\xa0\x80\"": errUTF8, "\"\xc3\"": errUTF8, "{\"\xff\":1}": errUTF8,
		`"\ud800"`: errSurrogate, `"\udc00"`: errSurrogate, `"\ud800x"`: errSurrogate, `"\ud800\n"`: errSurrogate, `"\ud800\ud800"`: errSurrogate,
		`{"a":1,"a":2}`: errDuplicate, `{"a":1,"\u0061":2}`: errDuplicate, `{"\u0061":1,"\u0061":2}`: errDuplicate,
		`{"x":[{"b":1,"c":{},"b":1}]}`: errDuplicate, `{"":1,"":2}`: errDuplicate, `{"é":1,"\u00e9":2}`: errDuplicate,
		strings.Repeat("[", MaxJSONDepth+1): errDepth, strings.Repeat(`{"a":`, MaxJSONDepth+1): errDepth,
	} {
		err := ScanJSON([]byte(in))
		if !errors.Is(err, ErrMalformed) || !errors.Is(err, why) {
			t.Errorf("%.60q: got %v, want %q", in, err, why)
		}
	}
}

// TestScanJSONManyKeys tests objects with so many keys that they are sorted, with the repeated key
// at any position.
func TestScanJSONManyKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, linearKeys - 1, linearKeys, linearKeys + 1, 1000} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"key %d":{"key %d":0},`, i, i)
		}
		if err := ScanJSON([]byte("{" + strings.TrimSuffix(b.String(), ",") + "}")); err != nil {
			t.Errorf("%d distinct keys: %v", n, err)
		}
		again := rng.IntN(n)
		if err := ScanJSON(fmt.Appendf(nil, `{%s"key %d":0}`, b.String(), again)); !errors.Is(err, errDuplicate) {
			t.Errorf("%d keys and key %d again: %v", n, again, err)
		}
	}
}

// TestScanJSONCost limits the time and memory for a megabyte of the most expensive inputs.
func TestScanJSONCost(t *testing.T) {
	const size = 1 << 20
	var keys bytes.Buffer
	keys.WriteByte('{')
	for i := 0; keys.Len() < size-20; i++ {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	keys.WriteString(`"z":0}`)
	prefix := strings.Repeat("p", 500)
	var long bytes.Buffer
	long.WriteByte('{')
	for i := 0; long.Len() < size-600; i++ {
		fmt.Fprintf(&long, `"%s%d":0,`, prefix, i)
	}
	long.WriteString(`"z":0}`)
	escaped := bytes.ReplaceAll(keys.Bytes(), []byte(`":`), []byte(`\u0061":`))
	for name, in := range map[string][]byte{
		"short keys":   keys.Bytes(),
		"long keys":    long.Bytes(),
		"escaped keys": escaped,
		"empty arrays": []byte("[" + strings.Repeat("[],", size/3) + "0]"),
		"empty maps":   []byte("[" + strings.Repeat("{},", size/3) + "0]"),
		"small maps":   []byte("[" + strings.Repeat(`{"":0},`, size/7) + "0]"),
		"numbers":      []byte("[" + strings.Repeat("1,", size/2) + "0]"),
		"exponents":    []byte("[" + strings.Repeat("1e1,", size/4) + "0]"),
		"one number":   []byte(strings.Repeat("1", size)),
		"one string":   []byte(`"` + strings.Repeat(`\u0061`, size/6) + `"`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		err := ScanJSON(in)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		if took > 30*time.Second {
			t.Errorf("%s: %v for %d bytes; it must not be quadratic", name, took, len(in))
		}
		if used > 32*uint64(len(in)) {
			t.Errorf("%s: %d bytes of memory for %d of input, want at most 32 times", name, used, len(in))
		}
		t.Logf("%s: %v, %.1f times the input, %v", name, took.Round(time.Microsecond), float64(used)/float64(len(in)), err)
	}
}

// TestScanJSONLimitsMemoryOfDecoding shows that inputs of too many small values are refused, and
// ordinary inputs are not.
func TestScanJSONLimitsMemoryOfDecoding(t *testing.T) {
	small := []byte("[" + strings.Repeat(`{"":0},`, 400_000) + "0]")
	if err := ScanJSON(small); !errors.Is(err, errMemory) {
		t.Errorf("400,000 tiny objects, %d bytes: got %v, want %v", len(small), err, errMemory)
	}
	many := []byte("[" + strings.Repeat(`0,`, 2_000_000) + "0]")
	if err := ScanJSON(many); !errors.Is(err, errTokens) {
		t.Errorf("2,000,001 numbers: got %v, want %v", err, errTokens)
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, `{"id":%d,"name":"customer %d","active":true,"score":%d.5},`, i, i, i%100)
	}
	b.WriteString("0]")
	if err := ScanJSON(b.Bytes()); err != nil {
		t.Errorf("a megabyte of ordinary objects: %v", err)
	}
}

func TestScanJSONAllocatesNothing(t *testing.T) {
	in := []byte(`[1,"text with \n",[{}],{"a":1},-2.5]`)
	if n := testing.AllocsPerRun(100, func() { _ = ScanJSON(in) }); n > 1 {
		t.Errorf("%v allocations, want at most one (the list of open keys)", n)
	}
}

// FuzzScanJSON shows that encoding/json decodes each input that ScanJSON accepts, within the memory
// limit.
func FuzzScanJSON(f *testing.F) {
	for _, in := range []string{
		`{"task":"a","args":[1,2.5e3,null,true,{"b":"\ud83d\ude00"}]}`, `{"a":1,"\u0061":2}`, `1e999999999`, `"\ud800"`,
		"\"\xff\"", `[[],[],[]]`, `NaN`, "", "{", `{"a":`, `-0`, ` 1 `,
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if ScanJSON(data) != nil {
			return
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatalf("ScanJSON takes %q, encoding/json says %v", data, err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%q was read, and cannot be written: %v", data, err)
		}
		if err := ScanJSON(again); err != nil {
			t.Fatalf("encoding/json writes %q, ScanJSON says %v", again, err)
		}
	})
}
