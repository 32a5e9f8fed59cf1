// Package phrase has parts of the sentences that explain where a task is.
package phrase

import (
	"fmt"
	"strings"
	"time"
)

// Stamp formats a time in UTC, to the second.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Because returns ": " and the reason, or "" without a reason.
func Because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(reason, ".")
}

// Each returns "Each of the 3 workers" or "The only worker", for a sentence about a queue.
func Each(n int, noun string) string {
	if n == 1 {
		return "The only " + noun
	}
	return fmt.Sprintf("Each of the %d %ss", n, noun)
}
