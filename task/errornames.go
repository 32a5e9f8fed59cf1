package task

import (
	"errors"
	"fmt"
	"strings"
)

// Named wraps err with a name by which a [RetryPolicy] and [RemoteError].Type know it. Use it for
// errors without a type of their own, such as those of [errors.New].
//
// A name has 1 to 128 visible ASCII characters and no comma. By convention it begins with the
// program's name: "billing.Busy". Returns nil if err is nil.
func Named(name string, err error) error {
	if err == nil {
		return nil
	}
	return &namedError{name, err}
}

type namedError struct {
	name string
	err  error
}

func (e *namedError) Error() string { return e.err.Error() }
func (e *namedError) Unwrap() error { return e.err }

// ErrorNames returns the names by which a [RetryPolicy] knows err:
//
//   - the names of this package's errors that err matches
//   - the names of [Named]
//   - the Go types of all errors that err wraps, without the asterisk of a pointer
func ErrorNames(err error) []string {
	var names []string
	for _, t := range wireTypes {
		if errors.Is(err, t.err) {
			names = append(names, t.name)
		}
	}
	return appendNames(names, err)
}

func appendNames(names []string, err error) []string {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // the chain is walked here
		case *namedError:
			names = append(names, e.name)
		case *RemoteError:
			return append(names, e.Type)
		default:
			names = append(names, goType(err))
		}
		switch u := err.(type) { //nolint:errorlint // likewise
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range u.Unwrap() {
				names = appendNames(names, inner)
			}
			return names
		default:
			return names
		}
	}
	return names
}

func goType(err error) string { return strings.TrimPrefix(fmt.Sprintf("%T", err), "*") }
