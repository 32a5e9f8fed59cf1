// Package serializertest has the conformance suites of the serializer port: [TestSerializer] for a
// serializer.Serializer and [TestFormat] for a serializer.Format. They have a case for each
// sentence of the port. A failed case prints why it matters.
//
// The package also has generators of envelopes, and hostile inputs, for other tests.
package serializertest

import (
	"runtime"
	"testing"
	"time"
)

// testCase tests one sentence of the port.
type testCase[T any] struct {
	name string
	why  string // printed if the case fails
	run  func(t *testing.T, subject T)
}

// runCases runs each case as a subtest of t with subject. If one fails it logs the reason of the
// case.
func runCases[T any](t *testing.T, subject T, cases []testCase[T]) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("why this matters: %s", c.why)
				}
			})
			c.run(t, subject)
		})
	}
}

// allocated calls f and returns the number of bytes that the process allocated meanwhile, including
// freed ones.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// concurrently calls f with 0 to 3 in four goroutines at once and waits for all of them. It fails t
// if they need longer than 30 s.
func concurrently(t *testing.T, f func(i int)) {
	t.Helper()
	const n = 4
	done := make(chan struct{}, n)
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			f(i)
		}()
	}
	deadline := time.After(30 * time.Second)
	for range n {
		select {
		case <-done:
		case <-deadline:
			t.Fatal("concurrent calls did not end within 30 s: the port says that any goroutine may call")
		}
	}
}
