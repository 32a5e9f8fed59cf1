package wire

import (
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/serializer"
)

// errBytes is the error for bytes in JSON.
var errBytes = errors.New("bytes cannot be written as JSON for Celery; use msgpack or a string")

// appendJSON appends v as Python's json module reads it best: a whole float has a fraction, 2.0, so
// that it stays a float. Returns errBytes for a []byte, as Celery does. Values with methods of
// their own, and structs with embedded fields, are written by encoding/json.
func appendJSON(b []byte, v any) ([]byte, error) { return appendValue(b, reflect.ValueOf(v), 0) }

// isMarshaler reports whether values of t are written by their own methods.
func isMarshaler(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// appendValue does the work of appendJSON.
func appendValue(b []byte, v reflect.Value, depth int) ([]byte, error) {
	if depth > 2*serializer.MaxJSONDepth { // a pointer and its value count twice
		return nil, errors.New("nested too deep")
	}
	if !v.IsValid() {
		return append(b, "null"...), nil
	}
	if isMarshaler(v.Type()) {
		return appendStandard(b, v)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return appendValue(b, v.Elem(), depth+1)
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); f == math.Trunc(f) && math.Abs(f) < 1e21 { // larger ones have an exponent
			text, err := appendStandard(b, v)
			return append(text, ".0"...), err
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil, errBytes
		}
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return appendList(b, v, depth+1)
	case reflect.Array:
		return appendList(b, v, depth+1)
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && !isMarshaler(v.Type().Key()) && !v.IsNil() {
			return appendMap(b, v, depth+1)
		}
	case reflect.Struct:
		if fields, ok := plainFields(v.Type()); ok {
			return appendStruct(b, v, fields, depth+1)
		}
	}
	return appendStandard(b, v)
}

// appendStandard appends v as encoding/json writes it.
func appendStandard(b []byte, v reflect.Value) ([]byte, error) {
	text, err := json.Marshal(v.Interface())
	return append(b, text...), err
}

// appendList appends the elements of a slice or an array.
func appendList(b []byte, v reflect.Value, depth int) ([]byte, error) {
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendValue(b, v.Index(i), depth); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendMap appends the members of a map with text keys, in the order of the keys.
func appendMap(b []byte, v reflect.Value, depth int) ([]byte, error) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendMember(b, k.String(), v.MapIndex(k), depth); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendMember appends a name and a value.
func appendMember(b []byte, name string, v reflect.Value, depth int) ([]byte, error) {
	key, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	return appendValue(append(append(b, key...), ':'), v, depth)
}

// plainField is a field of a struct as encoding/json names it.
type plainField struct {
	index     int
	name      string
	omitempty bool
	omitzero  bool
}

// plainFields returns the fields of a struct that are written. It returns false for a struct that
// only encoding/json can write: with embedded fields or the option "string".
func plainFields(t reflect.Type) ([]plainField, bool) {
	var fields []plainField
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			return nil, false
		}
		tag := f.Tag.Get("json")
		if !f.IsExported() || tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			name = f.Name
		}
		one := plainField{index: i, name: name}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty":
				one.omitempty = true
			case "omitzero":
				one.omitzero = true
			case "string":
				return nil, false
			}
		}
		fields = append(fields, one)
	}
	return fields, true
}

// appendStruct appends the fields of a struct.
func appendStruct(b []byte, v reflect.Value, fields []plainField, depth int) ([]byte, error) {
	b = append(b, '{')
	first := true
	for _, f := range fields {
		value := v.Field(f.index)
		if f.omitzero && value.IsZero() || f.omitempty && empty(value) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		var err error
		if b, err = appendMember(b, f.name, value, depth); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// empty reports whether the option omitempty leaves v out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	}
	return v.IsZero()
}
