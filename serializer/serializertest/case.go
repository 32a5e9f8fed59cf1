// Package serializertest holds the conformance suites of the serializer port: one for a [serializer.Serializer] and one for
// a [serializer.Format], with a case for every sentence of the port that says what they do. Each case prints on failure
// why it matters. It also has generators of envelopes and inputs made to do harm, for tests of one's own.
package serializertest

import (
	"runtime"
	"testing"
	"time"
)

// testCase is one sentence of the port.
type testCase[T any] struct {
	name string
	why  string // printed when the case fails
	run  func(t *testing.T, subject T)
}

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

// allocated returns how many bytes f allocates, what was freed again included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// concurrently calls f in some goroutines at once and waits for all of them.
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
