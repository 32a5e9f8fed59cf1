package msgpack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	lib "github.com/vmihailenco/msgpack/v5"

	"github.com/swarmiji/swarmiji/serializer"
)

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDecodeMemory shows that input accepted by Scan is decoded within 32 times its size plus 16
// MiB. The inputs are the most expensive ones for the library.
func TestDecodeMemory(t *testing.T) {
	list := func(element string, n int) []byte {
		head := []byte{0xdd, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		return append(head, strings.Repeat(element, n)...)
	}
	pairs := func(pair string, n int) []byte {
		b := list(pair, n)
		b[0] = 0xdf
		return b
	}
	size := 1 << 18
	if os.Getenv("SWARMIJI_THOROUGH") != "" {
		size = 1 << 20 // with the race detector the full size takes 15 seconds
	}
	for name, in := range map[string][]byte{
		"integers":         list("\x01", size),
		"large integers":   list("\xcd\xff\xff", size/3),
		"nil":              list("\xc0", size),
		"empty texts":      list("\xa0", size),
		"short texts":      list("\xa1a", size/2),
		"texts":            list("\xa8abcdefgh", size/9),
		"empty bins":       list("\xc4\x00", size/2),
		"empty lists":      list("\x90", size),
		"lists of one":     list("\x91\x01", size/2),
		"empty maps":       list("\x80", size),
		"maps of one":      list("\x81\xa1a\x01", size/4),
		"maps of three":    list("\x83\xa1a\x01\xa1b\x02\xa1c\x03", size/10),
		"the same key":     pairs("\xa0\xc0", size/2),
		"timestamps":       list("\xd6\xff\x00\x00\x00\x01", size/6),
		"posing times":     list("\xd6\xff\xdf\xff\xff\xff", size/6),
		"pairs for a text": pairs("\xa1a\xa1b", size/4),
	} {
		limit := 32*uint64(len(in)) + 16<<20 + 1<<20
		scanned := Scan(in)
		if scanned != nil && !errors.Is(scanned, serializer.ErrMalformed) {
			t.Errorf("%s: %v", name, scanned)
		}
		for _, into := range []any{new(any), new(map[string]any), new([]int64), new(map[string]string), new([]string), new([]struct{})} {
			limit := limit
			if _, ok := into.(*[]string); ok {
				limit = 5 * 16 * uint64(len(in)) // beyond a million elements the library appends, which copies
			}
			var err error
			used := allocated(func() { err = Serializer{}.Unmarshal(in, into) })
			if used > limit {
				t.Errorf("%s into %T: %.1f times the input, limit %.1f (%v)", name, into, float64(used)/float64(len(in)), float64(limit)/float64(len(in)), err)
			}
			if err == nil && scanned != nil {
				t.Errorf("%s into %T: it was read though Scan says %v", name, into, scanned)
			}
		}
	}
	ordinary := make([]map[string]any, 0, 30000)
	for i := range cap(ordinary) {
		ordinary = append(ordinary, map[string]any{"id": i, "name": fmt.Sprintf("customer %d", i), "ok": true})
	}
	if _, err := (Serializer{}).Marshal(ordinary); err != nil {
		t.Errorf("a list of 30,000 ordinary maps is refused: %v", err)
	}
}

// TestExtensionCannotPoseAsMap shows that an extension in the place of a map is refused or
// harmless. The library reads its payload as the header of a map, so ten bytes could request the
// memory of four billion pairs.
func TestExtensionCannotPoseAsMap(t *testing.T) {
	for _, in := range []string{
		"\xd7\xff\xdf\x7f\xff\xff\xff\x00\x00\x00", // timestamp of 8 bytes
		"\xd6\xff\xdf\x7f\xff\xff",                 // of 4 bytes
		"\xc7\x05\x01\xdf\x7f\xff\xff\xff",         // another extension
		// the count continues behind the payload
		"\x92\xd6\xff\xdf\x00\xff\xff\xce\xff\xff\xff\xff",
		"\x81\xa1a\xd7\xff\xdf\x00\xff\xff\xff\x00\x00\x00",            // as a value in a map
		"\xc7\x0c\xff\x3b\x9a\xc9\xff\xdf\x7f\xff\xff\xff\x00\x00\x00", // the long form is harmless
	} {
		for _, into := range []any{
			new(map[string]any), new(map[string]string), new(map[string]int), new([]map[string]any), new(map[string]map[string]any), new(any),
			new(struct{ A map[string]any }), new(struct {
				A map[string]string `msgpack:"a"`
			}),
		} {
			var err error
			used := allocated(func() { err = Serializer{}.Unmarshal([]byte(in), into) })
			if used > 1<<20 {
				t.Errorf("%x into %T took %d bytes of memory (%v)", in, into, used, err)
			}
		}
	}
}

// TestTimesComeBack shows that times are decoded unchanged, including those that had to be
// rewritten.
func TestTimesComeBack(t *testing.T) {
	type event struct {
		At   time.Time
		Then []time.Time
		Name string
	}
	for _, at := range []time.Time{
		time.Unix(1760000000, 937_000_001), time.Unix(0xdf000000, 0), time.Unix(1760000000, 0), time.Unix(-5, 3),
		time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		in := event{At: at, Then: []time.Time{at, at.Add(time.Nanosecond)}, Name: "x"}
		data, err := Serializer{}.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out event
		if err := (Serializer{}).Unmarshal(data, &out); err != nil {
			t.Errorf("%v: %v", at, err)
			continue
		}
		if !out.At.Equal(at) || len(out.Then) != 2 || !out.Then[1].Equal(in.Then[1]) || out.Name != "x" {
			t.Errorf("%v became %+v", in, out)
		}
	}
}

type panics struct{}

func (panics) EncodeMsgpack(*lib.Encoder) error  { panic("encode") }
func (*panics) DecodeMsgpack(*lib.Decoder) error { panic("decode") }

func TestPanicsBecomeErrors(t *testing.T) {
	if _, err := (Serializer{}).Marshal(panics{}); !errors.Is(err, serializer.ErrValue) {
		t.Errorf("a method that panics gave %v, want ErrValue", err)
	}
	if err := (Serializer{}).Unmarshal([]byte{1}, new(panics)); !errors.Is(err, serializer.ErrValue) {
		t.Errorf("a method that panics gave %v, want ErrValue", err)
	}
	// A list cannot be a key of a map.
	if err := (Serializer{}).Unmarshal([]byte("\x81\x91\x01\x02"), new(map[any]any)); !errors.Is(err, serializer.ErrValue) {
		t.Errorf("a list as key gave %v, want ErrValue", err)
	}
}

func TestStructsFromArrays(t *testing.T) {
	data, err := Serializer{}.Marshal([]int{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	var args sumArgs
	if err := (Serializer{}).Unmarshal(data, &args); err != nil || args != (sumArgs{1, 2}) {
		t.Errorf("[1, 2] read into a struct of two fields gave %v, %v", args, err)
	}
	if !bytes.Equal(data, []byte{0x92, 1, 2}) {
		t.Errorf("[1, 2] is %x, want whole numbers in their shortest form", data)
	}
}

func TestMarshalRefusesWhatIsNotReadBack(t *testing.T) {
	type node struct{ Next *node }
	var deep *node
	for range 100 {
		deep = &node{deep}
	}
	if _, err := (Serializer{}).Marshal(deep); !errors.Is(err, serializer.ErrValue) {
		t.Errorf("a value nested 100 deep gave %v, want ErrValue", err)
	}
}
