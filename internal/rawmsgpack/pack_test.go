package rawmsgpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	lib "github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// TestAppendIsMsgpack compares written values with the values that the library reads, at every
// limit of a length.
func TestAppendIsMsgpack(t *testing.T) {
	for _, v := range []int64{
		0, 1, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, math.MaxInt64,
		-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, math.MinInt64,
	} {
		b := AppendInt(nil, v)
		var got int64
		if err := lib.Unmarshal(b, &got); err != nil || got != v {
			t.Errorf("%d: the library reads %d, %v from %x", v, got, err, b)
		}
		r := NewReader(b)
		if got := r.Int(); got != v || r.Err() != nil {
			t.Errorf("%d: read back as %d, %v", v, got, r.Err())
		}
		want, err := lib.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > len(want) {
			t.Errorf("%d takes %d bytes, want at most %d", v, len(b), len(want))
		}
	}
	for _, n := range []int{0, 1, 31, 32, 255, 256, 65535, 65536, 70000} {
		s := strings.Repeat("x", n)
		var got string
		if err := lib.Unmarshal(AppendText(nil, s), &got); err != nil || got != s {
			t.Errorf("a text of %d bytes came back with %d, %v", n, len(got), err)
		}
		var raw []byte
		if err := lib.Unmarshal(AppendBytes(nil, []byte(s)), &raw); err != nil || string(raw) != s {
			t.Errorf("%d bytes came back as %d, %v", n, len(raw), err)
		}
		list := AppendArrayLen(nil, n)
		pairs := AppendMapLen(nil, n)
		for i := range n {
			list = AppendNil(list)
			pairs = AppendBool(AppendInt(pairs, int64(i)), i%2 == 0)
		}
		var ls []any
		if err := lib.Unmarshal(list, &ls); err != nil || len(ls) != n {
			t.Errorf("a list of %d came back with %d, %v", n, len(ls), err)
		}
		var m map[int]bool
		if err := lib.Unmarshal(pairs, &m); err != nil || len(m) != n || n > 1 && (!m[0] || m[1]) {
			t.Errorf("a map of %d came back with %d, %v", n, len(m), err)
		}
	}
}

func TestReaderReadsWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "int")
		s := rapid.String().Draw(t, "text")
		p := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		v := rapid.Bool().Draw(t, "bool")
		b := AppendBool(AppendBytes(AppendText(AppendInt(AppendArrayLen(nil, 4), n), s), p), v)
		if _, err := Check(b); err != nil {
			t.Fatalf("Check(%x): %v", b, err)
		}
		r := NewReader(b)
		if got := r.ArrayLen(); got != 4 {
			t.Fatalf("length %d", got)
		}
		if got := r.Int(); got != n {
			t.Fatalf("%d became %d", n, got)
		}
		if got := r.Text(); string(got) != s {
			t.Fatalf("%q became %q", s, got)
		}
		if got := r.Bytes(); !bytes.Equal(got, p) {
			t.Fatalf("%x became %x", p, got)
		}
		if got := r.Bool(); got != v {
			t.Fatalf("%v became %v", v, got)
		}
		r.Done()
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		r = NewReader(b)
		if raw := r.Skip(); !bytes.Equal(raw, b) || r.Err() != nil {
			t.Fatalf("Skip gave %x, %v; want %x", raw, r.Err(), b)
		}
	})
}

func TestReaderErrorsStick(t *testing.T) {
	for name, read := range map[string]func(r *Reader){
		"Int":      func(r *Reader) { r.Int() },
		"Bool":     func(r *Reader) { r.Bool() },
		"Bytes":    func(r *Reader) { r.Bytes() },
		"MapLen":   func(r *Reader) { r.MapLen() },
		"ArrayLen": func(r *Reader) { r.ArrayLen() },
		"Key":      func(r *Reader) { r.Key(new(Keys)) },
	} {
		r := NewReader([]byte("\xa1a\x01"))
		read(&r)
		if !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%s of a text gave %v, want ErrMalformed", name, r.Err())
		}
		if r.Text() != nil || r.Skip() != nil || r.Int() != 0 || r.Nil() || r.Peek() != 0xc1 {
			t.Errorf("after %s failed, something was read", name)
		}
	}
	r := NewReader([]byte("\x01\x02\x01"))
	var seen Keys
	if r.Key(&seen) != 1 || r.Key(&seen) != 2 || r.Err() != nil {
		t.Fatalf("two keys: %v", r.Err())
	}
	if r.Key(&seen); !errors.Is(r.Err(), ErrMalformed) {
		t.Errorf("a key that is there twice gave %v", r.Err())
	}
	r = NewReader([]byte("\xa2a\xff"))
	if r.Text(); !errors.Is(r.Err(), ErrMalformed) {
		t.Errorf("a text that is not UTF-8 gave %v", r.Err())
	}
	r = NewReader([]byte("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"))
	if got := r.Int(); got != math.MaxInt64 || r.Err() != nil {
		t.Errorf("2^64-1 gave %d, %v; want the largest int64", got, r.Err())
	}
}

func TestCheck(t *testing.T) {
	for _, in := range []string{
		"c0", "c2", "7f", "e0", "90", "80", "a0", "c400", "c50000", "c600000000", "dc0000", "dd00000000", "de0000", "df00000000",
		"cc01", "cd0001", "ce00000001", "cf0000000000000001", "d0ff", "d1ffff", "d2ffffffff", "d3ffffffffffffffff",
		"ca00000000", "cb0000000000000000", "d90161", "da000161", "db0000000161", "920102", "81a16101",
		"d6ff00000001", "d7ff0000000000000001", "c70cff000000000000000000000001",
		strings.Repeat("91", MaxDepth) + "c0", strings.Repeat("91", MaxDepth-1) + "90",
	} {
		data, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Check(data); err != nil {
			t.Errorf("%.40s: %v", in, err)
		}
		for cut := range data {
			if _, err := Check(data[:cut]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%.40s cut to %d bytes gave %v, want ErrMalformed", in, cut, err)
			}
		}
		if _, err := Check(append(data, 0xc0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.40s and one byte more gave %v, want ErrMalformed", in, err)
		}
	}
	for name, in := range map[string]string{
		"never used":             "c1",
		"too deep":               strings.Repeat("91", MaxDepth+1) + "c0",
		"too deep, empty inside": strings.Repeat("91", MaxDepth) + "90",
		"other extension":        "d401ff",
		"ext of another length":  "d5ff0000",
		"too many nanoseconds":   "c70cff3b9aca000000000000000000",
		"too many in fixext":     "d7ffee6b280000000000",
		// the inner list takes the outer list's second element
		"owed in all":             "92dc0003c0c0c0",
		"map of 2, pairs for 1":   "820102",
		"array of 2^31 in a list": "91dd80000000",
	} {
		data, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Check(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s gave %v, want ErrMalformed", name, err)
		}
	}
}

// TestCheckCountsWhatIsOwed shows that a chain of large headers, each of which alone would be
// valid, fails at the second one.
func TestCheckCountsWhatIsOwed(t *testing.T) {
	_, err := Check(bytes.Repeat([]byte{0xdc, 0xff, 0xff}, 24_000))
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "declared at byte 3,") {
		t.Errorf("got %v, want an error at byte 3, where the elements of both lists no longer fit", err)
	}
}

// TestWidenTimes shows that every timestamp keeps its time, and that no payload begins with the
// first byte of a map.
func TestWidenTimes(t *testing.T) {
	moments := []time.Time{
		time.Unix(0, 0), time.Unix(0xdfffffff, 0), time.Unix(1760000000, 937_000_001), time.Unix(1<<34, 5), time.Unix(-1, 999_999_999),
		time.Unix(1760000000, 999_999_999), time.Unix(1760000000, 0),
	}
	list := AppendArrayLen(nil, 2*len(moments))
	posing := 0
	for _, m := range moments {
		one, err := lib.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Check(one); err != nil {
			t.Errorf("%v: %v", m, err)
		}
		if sum, _ := Check(one); sum.Posing > 0 {
			posing++
		}
		list = AppendText(append(list, one...), "between")
	}
	if posing == 0 {
		t.Error("none of the moments poses as a map: the test tests nothing")
	}
	sum, err := Check(list)
	if err != nil || sum.Times != len(moments) || sum.Posing != posing {
		t.Fatalf("Check gave %+v, %v; want %d times, %d of them posing", sum, err, len(moments), posing)
	}
	wide := WidenTimes(list, sum)
	if sum, err := Check(wide); err != nil || sum.Posing != 0 || sum.Times != len(moments) {
		t.Errorf("after WidenTimes Check gives %+v, %v; want %d times, none posing", sum, err, len(moments))
	}
	var got []any
	if err := lib.Unmarshal(wide, &got); err != nil {
		t.Fatal(err)
	}
	for i, m := range moments {
		if g, ok := got[2*i].(time.Time); !ok || !g.Equal(m) {
			t.Errorf("%v became %v", m, got[2*i])
		}
		if got[2*i+1] != "between" {
			t.Errorf("what stands behind %v became %v", m, got[2*i+1])
		}
	}
}

// TestReaderCountsElements shows that a length which the rest of the data cannot hold is an error,
// so that callers can allocate for it.
func TestReaderCountsElements(t *testing.T) {
	for data, read := range map[string]func(r *Reader) int{
		"\x92\x01":                     (*Reader).ArrayLen,
		"\xdc\x03\xe8\x01":             (*Reader).ArrayLen,
		"\xdd\xff\xff\xff\xff\x01":     (*Reader).ArrayLen,
		"\x82\x01\x01\x02":             (*Reader).MapLen,
		"\xde\x03\xe8\x01\x01":         (*Reader).MapLen,
		"\xdf\xff\xff\xff\xff\x01\x01": (*Reader).MapLen,
	} {
		r := NewReader([]byte(data))
		if n := read(&r); n != 0 || !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%x: %d elements, %v; want 0 and ErrMalformed", data, n, r.Err())
		}
	}
	for data, read := range map[string]func(r *Reader) int{"\x92\x01\x02": (*Reader).ArrayLen, "\x82\x01\x01\x02\x02": (*Reader).MapLen} {
		r := NewReader([]byte(data))
		if n := read(&r); n != 2 || r.Err() != nil {
			t.Errorf("%x: %d elements, %v; want 2", data, n, r.Err())
		}
	}
}
