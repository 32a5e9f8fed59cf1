package suite

import (
	"reflect"
	"testing"

	"github.com/swarmiji/swarmiji/capability"
)

// Capability is an optional interface of a port. [CapabilityOf] makes it.
type Capability struct {
	name string
	has  func(v any) bool        // v has it itself
	find func(v any) (any, bool) // on v or on what it wraps
}

// CapabilityOf makes the Capability that T is.
func CapabilityOf[T any]() Capability {
	return Capability{
		name: reflect.TypeFor[T]().String(),
		has:  func(v any) bool { _, ok := v.(T); return ok },
		find: func(v any) (any, bool) { return capability.As[T](v) },
	}
}

// Keeps fails t unless each of the capabilities is found through wrapped as it is found on v.
// wrapped holds v and has Unwrap; it has none of the capabilities itself.
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

// Offer returns T, a capability that v promises, or fails t.
func Offer[T any](t testing.TB, v any) T {
	t.Helper()
	c, ok := capability.As[T](v)
	if !ok {
		t.Fatalf("%T is no %s, as it promises to be", v, reflect.TypeFor[T]())
	}
	return c
}
