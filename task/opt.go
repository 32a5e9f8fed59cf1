package task

// Opt is a value that may be unset. It distinguishes "not given" from zero, so that a layer of
// [Metadata] can override a lower one with 0, false or "". The zero value is unset. Opt values may
// be copied.
type Opt[T any] struct {
	value T
	set   bool
}

// Set returns an Opt that holds v.
func Set[T any](v T) Opt[T] { return Opt[T]{value: v, set: true} }

// Get returns the value and whether it was set.
func (o Opt[T]) Get() (T, bool) { return o.value, o.set }

// IsSet reports whether a value was set, even zero.
func (o Opt[T]) IsSet() bool { return o.set }

// Or returns the value if it is set, else def.
func (o Opt[T]) Or(def T) T {
	if o.set {
		return o.value
	}
	return def
}

// over returns o if it is set, else lower.
func (o Opt[T]) over(lower Opt[T]) Opt[T] {
	if o.set {
		return o
	}
	return lower
}
