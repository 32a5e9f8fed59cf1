package events_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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

// TestFilterDecode shows that Filter.Decode returns the matching events of Decode, also for types
// that contain each other or need escapes.
func TestFilterDecode(t *testing.T) {
	sent := []string{"a", "aa", "aaa", "task-sent", "task-sent-again", "sent", "a&b", `a"b`, `a\b`, "a/b", "<"}
	// no event can have the last two
	types, wanted := rapid.SampledFrom(sent), rapid.SampledFrom(append(sent[:len(sent):len(sent)], "", "é"))
	rapid.Check(t, func(t *rapid.T) {
		var all []events.Event
		for range rapid.IntRange(1, 4).Draw(t, "events") {
			all = append(all, events.Event{Type: types.Draw(t, "type"), TaskID: "1", Name: types.Draw(t, "name")})
		}
		message, err := events.Encode(all)
		if err != nil {
			t.Fatal(err)
		}
		f := events.Filter{Types: rapid.SliceOfN(wanted, 0, 2).Draw(t, "filter")}
		want, err := events.Decode(message)
		if err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(e events.Event) bool { return !f.Match(&e) })
		got, err := f.Decode(message)
		if err != nil || len(got) != len(want) || len(want) > 0 && !cmp.Equal(got, want) {
			t.Fatalf("%s for %q: %v, %v; want %v", message, f.Types, got, err, want)
		}
	})
}

// TestFilterDecodeOthers decodes messages of other programs.
func TestFilterDecodeOthers(t *testing.T) {
	f := events.Filter{Types: []string{"task-sent"}}
	for message, want := range map[string]int{
		`[{"task-id": "1", "type": "task-sent"}]`:                    1,
		`{"args": "task-sent", "type": "task-started"}`:              0,
		`[{"type": "task-started"}, {"type" : "task-sent" }]`:        1,
		`not JSON, and not of this type`:                             0,
		`[{"type": "task-sent-again"}, {"type": "again-task-sent"}]`: 0,
	} {
		es, err := f.Decode([]byte(message))
		if err != nil || len(es) != want {
			t.Errorf("%s: %v, %v; want %d", message, es, err, want)
		}
	}
	if _, err := f.Decode([]byte(`["task-sent"]`)); err == nil {
		t.Error("a malformed message with the type is no error")
	}
}
