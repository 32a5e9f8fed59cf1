package amqpbroker

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
)

// TestEntryOfLevels shows that an entry comes back, and that a version without fair queues refuses
// that of a fair queue.
func TestEntryOfLevels(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		q    broker.Queue
		want string
	}{
		{broker.Queue{}, "100"},
		{broker.Queue{Levels: []int{10, 100}}, "10,100"},
		{broker.Queue{Fair: true}, "fair;100"},
		{broker.Queue{Fair: true, Levels: []int{50}}, "fair;100"},
		{broker.Queue{Fair: true, Levels: []int{10, 100, 1000}}, "fair;10,100,1000"},
	} {
		entry := entryOf(tt.q)
		bounds, fair, ok := parseEntry(entry)
		want := tt.q.Levels
		if len(want) < 2 {
			want = []int{defaultPriority}
		}
		if entry != tt.want || !ok || fair != tt.q.Fair || !slices.Equal(bounds, want) {
			t.Errorf("%+v: entry %q, read as %v, %v, %v", tt.q, entry, bounds, fair, ok)
		}
		if _, err := strconv.Atoi(strings.Split(entry, ",")[0]); (err != nil) != tt.q.Fair {
			t.Errorf("an older version reads the entry %q of %+v with the error %v", entry, tt.q, err)
		}
	}
	for _, bad := range []string{"", "fair", "fair;", "fair;x", "fair;100,10", "fair;fair;100", "10,10", "unfair;100"} {
		if bounds, fair, ok := parseEntry(bad); ok {
			t.Errorf("the entry %q is read as %v, %v", bad, bounds, fair)
		}
	}
}
