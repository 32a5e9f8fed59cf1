package suite

import (
	"reflect"
	"testing"

	"github.com/swarmiji/swarmiji/capability"
)

// Capability is an optional interface of a port. Make one with [CapabilityOf].
type Capability struct {
	name string
	has  func(v any) bool        // v implements it itself
	find func(v any) (any, bool) // finds it on v or on a value that v wraps
}

// CapabilityOf returns the Capability for the interface T.
func CapabilityOf[T any]() Capability {
	return Capability{
		name: reflect.TypeFor[T]().String(),
		has:  func(v any) bool { _, ok := v.(T); return ok },
		find: func(v any) (any, bool) { return capability.As[T](v) },
	}
}

// Keeps fails t unless each capability is found through wrapped exactly as it is found on v.
// wrapped contains v and has an Unwrap method. It also fails t if wrapped itself implements a
// capability, because that would prove nothing.
func Keeps(t testing.TB, v, wrapped any, all ...Capability) {
	t.Helper()
	for _, c := range all {
		want, has := c.find(v)
		found, ok := c.find(wrapped)
		switch {
		case c.has(wrapped):
			t.Errorf("the wrapper %T has %s itself, which shows nothing", wrapped, c.name)
		case ok != has:
			t.Errorf("%T has %s: %t; through a wrapper: %t", v, c.name, has, ok)
		case found != want:
			t.Errorf("%s of %T is found on a %T", c.name, v, found)
		}
	}
}

// Offer returns v as T, a capability that v promises. It fails t at once if v does not have it.
func Offer[T any](t testing.TB, v any) T {
	t.Helper()
	c, ok := capability.As[T](v)
	if !ok {
		t.Fatalf("%T is no %s, as it promises to be", v, reflect.TypeFor[T]())
	}
	return c
}
