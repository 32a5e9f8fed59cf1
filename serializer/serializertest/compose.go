package serializertest

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// composerCases returns the cases of a serializer that is a Composer, or none.
func composerCases(s serializer.Serializer) []testCase[serializer.Serializer] {
	composer, ok := capability.As[serializer.Composer](s)
	if !ok {
		return nil
	}
	return []testCase[serializer.Serializer]{
		{
			"a value before the arguments",
			"The result of a step is the first argument of the next one, with all digits of an integer.",
			func(t *testing.T, s serializer.Serializer) { testPrepend(t, s, composer) },
		},
		{
			"a failure before the arguments",
			"An error task gets the failed task before its own arguments.",
			func(t *testing.T, s serializer.Serializer) { testPrependFailure(t, s, composer) },
		},
		{
			"no value before damaged arguments",
			"Damaged arguments are malformed: a task must not start with another value.",
			func(t *testing.T, _ serializer.Serializer) {
				for _, data := range []string{"{", "\xc1", "[[1],", "\x92\x01", "7", "\x07"} {
					if args, err := composer.Prepend([]byte(data), "x"); !errors.Is(err, serializer.ErrMalformed) {
						t.Errorf("Prepend to %q: %q, %v", data, args, err)
					}
					if args, err := composer.PrependFailure([]byte(data), task.Failure{ID: "t"}); !errors.Is(err, serializer.ErrMalformed) {
						t.Errorf("PrependFailure to %q: %q, %v", data, args, err)
					}
				}
			},
		},
		{
			"no value without an encoding",
			"A value that cannot be encoded is ErrValue, so that the next step fails with a reason.",
			func(t *testing.T, _ serializer.Serializer) {
				if args, err := composer.Prepend(nil, make(chan int)); !errors.Is(err, serializer.ErrValue) {
					t.Errorf("Prepend of a channel: %q, %v", args, err)
				}
			},
		},
	}
}

// testPrepend prepends values of each kind and reads them into structs.
func testPrepend(t *testing.T, s serializer.Serializer, c serializer.Composer) {
	prepend := func(args []byte, value any) []byte {
		t.Helper()
		before, copied := string(args), append([]byte{}, args...)
		out, err := c.Prepend(copied, value)
		if err != nil {
			t.Fatalf("Prepend of %v: %v", value, err)
		}
		if string(copied) != before {
			t.Errorf("Prepend of %v changed the arguments", value)
		}
		return out
	}
	one := prepend(nil, "last")
	for _, value := range []any{int64(1<<62 + 1), json.Number("4611686018427387905"), uint64(1<<62 + 1)} {
		var got struct {
			First int64
			Last  string
		}
		unmarshal(t, s, prepend(one, value), &got)
		if got.First != 1<<62+1 || got.Last != "last" {
			t.Errorf("%T %v: read as %+v", value, value, got)
		}
	}
	var all struct {
		Nothing *int
		Yes     bool
		Ratio   float64
		List    []any
		Map     map[string]any
		Last    string
	}
	args := one
	for _, value := range []any{map[string]any{"k": "v"}, []any{"a", nil}, 1.5, true, nil} {
		args = prepend(args, value)
	}
	unmarshal(t, s, args, &all)
	if d := cmp.Diff([]any{(*int)(nil), true, 1.5, []any{"a", nil}, map[string]any{"k": "v"}, "last"}, []any{all.Nothing, all.Yes, all.Ratio, all.List, all.Map, all.Last}); d != "" {
		t.Errorf("read as something else (-want +got):\n%s", d)
	}
}

// testPrependFailure expects the id of the failed task and then the argument.
func testPrependFailure(t *testing.T, s serializer.Serializer, c serializer.Composer) {
	args, err := c.Prepend(nil, "own")
	if err == nil {
		args, err = c.PrependFailure(args, task.Failure{ID: "failed-1", Type: "T", Message: "broken"})
	}
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ ID, Own string }
	unmarshal(t, s, args, &got)
	if got.ID != "failed-1" || got.Own != "own" {
		t.Errorf("read as %+v", got)
	}
}
