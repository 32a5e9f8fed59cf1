package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
)

// tracker finds the goroutines that were started by a function, directly or by other such
// goroutines. Unlike goleak it does not see those of other tests, which may run at the same time.
type tracker struct{ label string }

// run calls fn and tracks the goroutines that fn starts.
func (t *tracker) run(fn func()) {
	t.label = fmt.Sprintf("%p", t) // unique while t exists
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("tracker", t.label)))
	defer pprof.SetGoroutineLabels(context.Background())
	fn()
}

// running returns the stacks of the tracked goroutines that have not ended.
func (t *tracker) running() []string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return []string{err.Error()}
	}
	var own []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", "tracker", t.label)) {
			own = append(own, stack)
		}
	}
	return own
}
