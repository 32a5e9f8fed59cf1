package serializertest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/serializer"
)

// Person is the struct that the suite encodes and decodes.
type Person struct {
	Name    string         `json:"name" msgpack:"name"`
	Age     int            `json:"age" msgpack:"age"`
	Tags    []string       `json:"tags" msgpack:"tags"`
	Scores  map[string]int `json:"scores" msgpack:"scores"`
	Boss    *Person        `json:"boss" msgpack:"boss"`
	Picture []byte         `json:"picture" msgpack:"picture"`
}

// TestSerializer tests s against each sentence of the port. A serializer that supports only bytes
// and texts may return ErrValue for other values. A [serializer.Composer] is tested as one too.
func TestSerializer(t *testing.T, s serializer.Serializer) {
	t.Helper()
	runCases(t, s, composerCases(s))
	runCases(t, s, []testCase[serializer.Serializer]{
		{
			"content type",
			"ContentType names the encoding in messages: readers find the serializer by it.",
			func(t *testing.T, s serializer.Serializer) {
				first, again := s.ContentType(), s.ContentType()
				if first == "" || first != again {
					t.Errorf("content type %q, then %q", first, again)
				}
			},
		},
		{
			"round trip of bytes and texts",
			"What is written is read back; bytes and texts every serializer can.",
			func(t *testing.T, s serializer.Serializer) {
				rapid.Check(t, func(t *rapid.T) {
					checkBack(t, s, rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "bytes"))
					checkBack(t, s, rapid.String().Draw(t, "text"))
				})
			},
		},
		{
			"round trip of values",
			"What is written is read back: numbers at the ends of their range, structs, lists, maps.",
			testValues,
		},
		{
			"own slice",
			"Marshal writes into a new slice that belongs to the caller, who may keep and change it.",
			func(t *testing.T, s serializer.Serializer) {
				value := []byte("the caller's own value")
				first := marshal(t, s, value)
				for i := range first {
					first[i] ^= 0xff
				}
				second := marshal(t, s, value)
				var got []byte
				unmarshal(t, s, second, &got)
				if string(got) != "the caller's own value" || string(value) != "the caller's own value" {
					t.Errorf("writing into what Marshal returned changed a later result (%q) or the value (%q)", got, value)
				}
			},
		},
		{
			"keeps no reference",
			"Unmarshal keeps no reference to data: it may lie in a buffer that is used again.",
			func(t *testing.T, s serializer.Serializer) {
				data := marshal(t, s, []byte("some bytes"))
				var b []byte
				unmarshal(t, s, data, &b)
				text := marshal(t, s, "some text")
				var str string
				unmarshal(t, s, text, &str)
				for i := range data {
					data[i] = 0xff
				}
				for i := range text {
					text[i] = 0xff
				}
				if string(b) != "some bytes" || str != "some text" {
					t.Errorf("values changed with the data: %q, %q", b, str)
				}
			},
		},
		{
			"wrong types",
			"ErrValue says that the types do not fit, so that a caller can tell a wrong program from damaged bytes.",
			testWrongTypes,
		},
		{
			"more than one value",
			"Bytes after the value are an error: two readers might take different ones of two values.",
			func(t *testing.T, s serializer.Serializer) {
				one := marshal(t, s, "abc")
				two := append(bytes.Clone(one), one...)
				var got string
				err := s.Unmarshal(two, &got)
				if !errors.Is(err, serializer.ErrMalformed) && (err != nil || got != string(two)) {
					t.Errorf("gave %q, %v; want ErrMalformed", got, err)
				}
			},
		},
		{
			"cut at every byte",
			"Half a value is refused with ErrMalformed, at whatever byte it was cut.",
			func(t *testing.T, s serializer.Serializer) {
				whole, values := samples(t, s)
				for i, data := range whole {
					for at := range data {
						got := newLike(values[i])
						err := s.Unmarshal(data[:at], got)
						if !errors.Is(err, serializer.ErrMalformed) && (err != nil || !verbatim(s, data[:at])) {
							t.Errorf("%q cut to %q gave %v, want ErrMalformed", data, data[:at], err)
						}
					}
				}
			},
		},
		{
			"flipped bits",
			"Damage never ends the process: it gives another value, ErrMalformed or ErrValue.",
			func(t *testing.T, s serializer.Serializer) {
				whole, values := samples(t, s)
				for i, data := range whole {
					for at := range data {
						for bit := range 8 {
							c := bytes.Clone(data)
							c[at] ^= 1 << bit
							for _, into := range []any{newLike(values[i]), new(any), new(map[string]any)} {
								checkClass(t, fmt.Sprintf("%q", c), s.Unmarshal(c, into))
							}
						}
					}
				}
			},
		},
		{
			"hostile inputs",
			"The structure is checked before memory is taken for it: a few bytes must not take the process down.",
			func(t *testing.T, s serializer.Serializer) {
				for _, h := range HostileInputs() {
					for _, into := range []any{new(any), new([]any), new(map[string]any), new(map[string]string), new([]int64), new([]struct{}), new(Person), new([]byte)} {
						var err error
						used := allocated(func() { err = s.Unmarshal(h.Data, into) })
						if limit := uint64(1<<20 + 32*len(h.Data)); used > limit {
							t.Errorf("%s into %T: %d bytes of memory for %d of input, want at most %d", h.Name, into, used, len(h.Data), limit)
						}
						if err == nil && !verbatim(s, h.Data) {
							t.Errorf("%s into %T was read", h.Name, into)
						}
						checkClass(t, h.Name, err)
					}
				}
			},
		},
		{
			"concurrent use",
			"Serializers are stateless and may be used from any goroutine.",
			func(t *testing.T, s serializer.Serializer) {
				concurrently(t, func(i int) {
					for n := range 100 {
						want := fmt.Sprintf("value %d of %d", n, i)
						data, err := s.Marshal(want)
						if err != nil {
							t.Errorf("Marshal: %v", err)
							return
						}
						var got string
						if err := s.Unmarshal(data, &got); err != nil || got != want {
							t.Errorf("got %q, %v; want %q", got, err, want)
							return
						}
					}
				})
			},
		},
	})
}

// marshal returns v encoded and fails t if Marshal returns an error.
func marshal(t fataler, s serializer.Serializer, v any) []byte {
	t.Helper()
	data, err := s.Marshal(v)
	if err != nil {
		t.Fatalf("Marshal(%T): %v", v, err)
	}
	return data
}

// unmarshal decodes data into v and fails t if Unmarshal returns an error.
func unmarshal(t fataler, s serializer.Serializer, data []byte, v any) {
	t.Helper()
	if err := s.Unmarshal(data, v); err != nil {
		t.Fatalf("Unmarshal(%q) into %T: %v", data, v, err)
	}
}

// newLike returns a pointer to a new zero value of the type of v.
func newLike(v any) any { return reflect.New(reflect.TypeOf(v)).Interface() }

// checkBack fails t unless v is the same after Marshal and Unmarshal.
func checkBack(t fataler, s serializer.Serializer, v any) {
	t.Helper()
	data := marshal(t, s, v)
	got := newLike(v)
	unmarshal(t, s, data, got)
	if d := cmp.Diff(v, reflect.ValueOf(got).Elem().Interface()); d != "" {
		t.Fatalf("a %T changed on its way (-written +read):\n%s\ndata: %q", v, d, data)
	}
}

// verbatim reports whether s accepts data unchanged; then no input is malformed.
func verbatim(s serializer.Serializer, data []byte) bool {
	var got []byte
	return s.Unmarshal(data, &got) == nil && bytes.Equal(got, data)
}

// checkClass fails t unless err is nil, ErrMalformed or ErrValue. The argument what names the
// input.
func checkClass(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrValue) {
		t.Errorf("%s: gave %v, want ErrMalformed or ErrValue", what, err)
	}
}

// values returns values of the types that a serializer must support.
func values() []any {
	return []any{
		"text with \x00 and \u20ac",
		[]byte{0, 0xff, 0x80},
		0, -1, 1 << 53, -(1 << 53), int64(1<<63 - 1), int64(-1 << 63), uint64(1<<64 - 1), 1.5, -2.25e300, true, false,
		[]int{1, 2, 3},
		[]int64{-129, 128, 65536},
		[]string{"a", ""},
		map[string]int{"a": 1, "": 2},
		map[string]string{"k": "v"},
		[][]int{{1}, {2, 3}},
		Person{Name: "A", Age: -7, Tags: []string{"x"}, Scores: map[string]int{"s": 1}, Boss: &Person{Name: "B"}, Picture: []byte{1}},
		[]Person{{Name: "A"}, {Name: "B"}},
	}
}

// testValues expects that each of values is the same after Marshal and Unmarshal. A serializer of
// bytes may refuse other types.
func testValues(t *testing.T, s serializer.Serializer) {
	for _, v := range values() {
		if _, err := s.Marshal(v); errors.Is(err, serializer.ErrValue) && verbatim(s, []byte("\x00raw\xff")) {
			continue // it supports only bytes
		}
		checkBack(t, s, v)
	}
}

// samples returns values in encoded form, and the values in the same order. It leaves out numbers
// and booleans, since half a number may be a valid number, and values that s refuses.
func samples(t *testing.T, s serializer.Serializer) (written [][]byte, of []any) {
	t.Helper()
	for _, v := range values() {
		switch v.(type) {
		case int, int64, uint64, float64, bool:
			continue // in some encodings half a number is a valid number
		}
		data, err := s.Marshal(v)
		if err != nil {
			continue // testValues checks whether the refusal is right
		}
		written, of = append(written, data), append(of, v)
	}
	return written, of
}

// testWrongTypes expects ErrValue from Marshal for values that cannot be encoded, and from
// Unmarshal for variables of a wrong type, nil and non-pointers.
func testWrongTypes(t *testing.T, s serializer.Serializer) {
	for _, v := range []any{make(chan int), func() {}, []any{make(chan int)}} {
		if _, err := s.Marshal(v); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("Marshal of a %T gave %v, want ErrValue", v, err)
		}
	}
	data := marshal(t, s, "abc")
	var nilPointer *string
	for _, v := range []any{new(int), new([]int), new(Person), new(chan int), "not a pointer", nilPointer, nil} {
		if err := s.Unmarshal(data, v); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("Unmarshal of a text into a %T gave %v, want ErrValue", v, err)
		}
	}
}
