package amqpdelay

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDelayKey shows that the levels in a routing key wait for the delay together. They never wait
// shorter, and at most 1/32 or 1,024 ms longer. The exchange of each level knows the next one.
func TestDelayKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(8*365*24*time.Hour)).Draw(t, "delay"))
		if rapid.Bool().Draw(t, "short") {
			d %= 2 * time.Minute
			d++
		}
		ms, err := millis(d)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Split(key(ms, topic("swj.ns.q.", "swj.ns.q.a.b")), ".")
		if n := len(words); words[n-2] != "q" || words[n-1] != "a/b" {
			t.Fatalf("the key ends with %q", words)
		}
		var wait time.Duration
		before := -1
		for _, word := range words[:len(words)-2] {
			level, err := strconv.Atoi(word)
			if err != nil || len(word) != 2 || level >= levels {
				t.Fatalf("level %q", word)
			}
			if before >= 0 && (before >= level || before < lowestBit(level)) {
				t.Fatalf("no binding leads from level %d to level %d", before, level)
			}
			wait += time.Millisecond << level
			before = level
		}
		if late := wait - d; late < 0 || late > max(d/32, time.Millisecond) || late > 1024*time.Millisecond {
			t.Fatalf("a delay of %v waits %v", d, wait)
		}
	})
}
