// Package capability finds what an adapter can do besides its port, also behind wrappers.
//
// A port is a small interface. What only some adapters can do is an optional interface beside it,
// such as broker.Delayer or resultstore.Gatherer. Wrappers are types that hold an adapter and take
// its place, to count its calls, for example. [As] looks through them.
package capability

// As finds T, an optional interface of a port: on v itself, or on what its Unwrap methods return.
// ok is false where nothing of that is a T. v may be nil.
//
// A wrapper has a method Unwrap() any that returns what it holds. The capabilities of that are then
// used without asking the wrapper, except for those that the wrapper has itself. A wrapper that
// passes none on has no Unwrap.
func As[T any](v any) (t T, ok bool) {
	for v != nil {
		if t, ok = v.(T); ok {
			return t, true
		}
		w, wraps := v.(interface{ Unwrap() any })
		if !wraps {
			break
		}
		v = w.Unwrap()
	}
	return t, false
}
