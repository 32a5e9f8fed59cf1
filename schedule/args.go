package schedule

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/task"
)

// contentType is the content type of arguments and results.
const contentType = "application/json"

// encodeArgs encodes arguments as a JSON list. A slice or array becomes the list; nil, a nil slice
// and [task.None] become the empty list; any other value becomes a list with one element. Slices of
// bytes and types with their own JSON encoding count as other values.
//
// A json.RawMessage is decoded first and then counts as the decoded value, so that equal values
// give equal bytes. Errors wrap [task.ErrBadArgs].
func encodeArgs(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		if err := taskio.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("%w: %w", task.ErrBadArgs, err)
		}
	}
	if _, none := v.(task.None); none || v == nil {
		return json.RawMessage("[]"), nil
	}
	text, err := taskio.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	switch list := isList(reflect.TypeOf(v)); {
	case list && bytes.Equal(text, []byte("null")):
		return json.RawMessage("[]"), nil
	case list:
		return text, nil
	}
	return append(append(json.RawMessage("["), text...), ']'), nil
}

// decodeArgs decodes a JSON list of arguments into v, a non-nil pointer. Its errors wrap
// [task.ErrBadArgs].
//
//   - A slice or array gets the whole list.
//   - Any other type gets the only element of a list of one; other lists are an error.
//   - An interface or json.RawMessage also gets a list of several elements as a whole, and
//     json.RawMessage an empty list.
//   - An empty list leaves a pointer, interface or empty struct unchanged.
func decodeArgs(args json.RawMessage, v any) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return fmt.Errorf("%w: cannot decode into a %T, only into a non-nil pointer", task.ErrBadArgs, v)
	}
	t := to.Type().Elem()
	list, err := split(args)
	if err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	what := args
	switch anything := t.Kind() == reflect.Interface || t == reflect.TypeFor[json.RawMessage](); {
	case isList(t):
	case len(list) == 1:
		what = list[0]
	case len(list) == 0 && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface || t.Kind() == reflect.Struct && t.NumField() == 0):
		return nil
	case !anything:
		return fmt.Errorf("%w: a %v takes one argument, but the entry has %d", task.ErrBadArgs, t, len(list))
	}
	if err := taskio.Unmarshal(what, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// split returns the elements of a JSON list, undecoded. Returns an error if args is not a JSON
// list; null gives no elements.
func split(args json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	err := json.Unmarshal(args, &list)
	return list, err
}

// isList reports whether encoding/json writes values of t as a JSON list. It is false for slices of
// bytes and for types with their own JSON or text encoding.
func isList(t reflect.Type) bool {
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
		return false
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return false // JSON writes bytes as a string
	}
	p := reflect.PointerTo(t)
	for _, own := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if p.Implements(own) {
			return false
		}
	}
	return true
}
