package task

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// secretTag is the value of the tag `task:"secret"`. A field with it never leaves the process in an
// error, an event or a log.
const secretTag = "secret"

// maxRedactDepth limits how deep Describe follows pointers and nested values. It ends the loop of a
// cyclic value.
const maxRedactDepth = 8

// Describe formats v for an error text, an event or a log, in at most max bytes of valid UTF-8. It
// replaces the value of every struct field tagged `task:"secret"`, at any depth, by "[redacted]".
// Errors, and values whose types have no such fields, are formatted with %v.
func Describe(v any, max int) string {
	if err, ok := v.(error); ok {
		return utf.Cut(err.Error(), max)
	}
	rv := reflect.ValueOf(v)
	if !rv.IsValid() || !holdsSecret(rv.Type(), 0) {
		return utf.Cut(fmt.Sprintf("%v", v), max)
	}
	var b strings.Builder
	describe(&b, rv, 0)
	return utf.Cut(b.String(), max)
}

// holdsSecret reports whether a value of type t may contain a tagged field. An interface may
// contain any type.
func holdsSecret(t reflect.Type, depth int) bool {
	if depth > maxRedactDepth {
		return true
	}
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsSecret(t.Elem(), depth+1)
	case reflect.Map:
		return holdsSecret(t.Key(), depth+1) || holdsSecret(t.Elem(), depth+1)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("task") == secretTag || holdsSecret(f.Type, depth+1) {
				return true
			}
		}
	}
	return false
}

// Discreet is a handler that reports whether the types of its task's arguments and result have
// fields tagged `task:"secret"`. [Task.Handle] registers such a handler if they have; Unwrap
// returns the inner handler.
type Discreet interface {
	Handler
	Secrets() (args, result bool)
	Unwrap() Handler
}

type discreet struct {
	Handler
	args, result bool
}

func (d *discreet) Secrets() (args, result bool) { return d.args, d.result }
func (d *discreet) Unwrap() Handler              { return d.Handler }

// HasSecrets reports whether t has a field tagged `task:"secret"` at any depth. It does not look
// behind interfaces. It returns false for nil.
func HasSecrets(t reflect.Type) bool { return t != nil && tagged(t, make(map[reflect.Type]bool)) }

func tagged(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return tagged(t.Elem(), seen)
	case reflect.Map:
		return tagged(t.Key(), seen) || tagged(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("task") == secretTag || tagged(f.Type, seen) {
				return true
			}
		}
	}
	return false
}

func describe(b *strings.Builder, v reflect.Value, depth int) {
	if depth > maxRedactDepth {
		b.WriteString("...")
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("<nil>")
			return
		}
		describe(b, v.Elem(), depth+1)
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			if i > 0 {
				b.WriteByte(' ')
			}
			field := v.Type().Field(i)
			b.WriteString(field.Name)
			b.WriteByte(':')
			if field.Tag.Get("task") == secretTag {
				b.WriteString("[redacted]")
			} else {
				describe(b, v.Field(i), depth+1)
			}
		}
		b.WriteByte('}')
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			describe(b, v.Index(i), depth+1)
		}
		b.WriteByte(']')
	case reflect.Map:
		b.WriteString("map[")
		for i, key := range v.MapKeys() {
			if i > 0 {
				b.WriteByte(' ')
			}
			describe(b, key, depth+1)
			b.WriteByte(':')
			describe(b, v.MapIndex(key), depth+1)
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%v", v)
	}
}
