// Package capability finds the optional interfaces of an adapter, also behind wrappers.
//
// A port is a small interface. An ability that only some adapters have is an optional interface
// beside the port, such as broker.Delayer or resultstore.Gatherer. A wrapper is a type that holds
// an adapter and replaces it, for example to count its calls. [As] looks through wrappers.
package capability

// As returns v as a T, an optional interface of a port. If v is not a T, it tries the values that
// the Unwrap methods return, one after the other. ok is false if none of them is a T. v may be nil.
//
// A wrapper has a method Unwrap() any that returns the wrapped value. Callers then use the
// capabilities of that value directly, except for those that the wrapper implements itself. A
// wrapper that must hide all capabilities has no Unwrap.
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
