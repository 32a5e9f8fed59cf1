package schedule

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/task"
)

// contentType is that of arguments and results.
const contentType = "application/json"

// encodeArgs writes arguments as a JSON list: a slice or array is the list, nothing is the empty one, and anything else is a list of
// one. JSON that is given as a json.RawMessage is written anew, so that equal values are equal bytes.
func encodeArgs(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		if err := errand.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("%w: %w", task.ErrBadArgs, err)
		}
	}
	if _, none := v.(task.None); none || v == nil {
		return json.RawMessage("[]"), nil
	}
	text, err := errand.Marshal(v)
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

// decodeArgs reads a JSON list of arguments into v, a non-nil pointer: all of it into a slice or array, else the only element. Into
// what takes anything goes the element of a list of one, and the list of several. Its errors wrap [task.ErrBadArgs].
func decodeArgs(args json.RawMessage, v any) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return fmt.Errorf("%w: a %T cannot be decoded into", task.ErrBadArgs, v)
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
		return fmt.Errorf("%w: %d of them for a %v", task.ErrBadArgs, len(list), t)
	}
	if err := errand.Unmarshal(what, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// split returns the elements of a JSON list.
func split(args json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	err := json.Unmarshal(args, &list)
	return list, err
}

// isList reports whether values of t are written as a JSON list because they are lists, and not because they say so themselves.
func isList(t reflect.Type) bool {
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
		return false
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return false // bytes are a text
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
