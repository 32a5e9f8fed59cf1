package events_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
)

// TestSelect shows that Select returns the message itself if all events are wanted, the wanted ones
// in their order, or nothing.
func TestSelect(t *testing.T) {
	all := []events.Event{{Type: "a", TaskID: "1"}, {Type: "b", TaskID: "2"}, {Type: "a", TaskID: "3"}}
	message, err := events.Encode(all)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		types string
		want  []events.Event
	}{"all": {"ab", all}, "some": {"a", []events.Event{all[0], all[2]}}, "none": {"c", nil}} {
		t.Run(name, func(t *testing.T) {
			part, n := events.Select(message, len(all), func(typ string) bool { return bytes.Contains([]byte(c.types), []byte(typ)) })
			if n != len(c.want) || len(c.want) == len(all) && &part[0] != &message[0] {
				t.Errorf("%d events, want %d", n, len(c.want))
			}
			if n == 0 {
				if part != nil {
					t.Errorf("a part without events: %s", part)
				}
				return
			}
			got, err := events.Decode(part)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
