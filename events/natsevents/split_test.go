package natsevents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// A caller stops after ErrClosed. An error of a connection that will be replaced must therefore not
// become ErrClosed.
func TestClosedMeansForGood(t *testing.T) {
	for name, c := range map[string]struct{ err, want, not error }{
		"closed":                {natsconn.ErrClosed, events.ErrClosed, events.ErrUnavailable},
		"one connection closed": {fmt.Errorf("%w: %w", natsconn.ErrUnavailable, natsconn.ErrClosed), events.ErrUnavailable, events.ErrClosed},
		"access":                {natsconn.ErrAccess, events.ErrUnavailable, events.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			err := failure("test", c.err)
			if !errors.Is(err, c.want) || errors.Is(err, c.not) || !errors.Is(err, c.err) {
				t.Errorf("failure(%v) is %v, want %v beside it and not %v", c.err, err, c.want, c.not)
			}
		})
	}
}

// anyEvent draws events with characters that could mislead the search for their ends.
func anyEvent() *rapid.Generator[events.Event] {
	text := rapid.StringOf(rapid.SampledFrom([]rune(`{}[],:"\ab€` + "\n\x00")))
	return rapid.Custom(func(t *rapid.T) events.Event {
		e := events.Event{
			Type: rapid.SampledFrom([]string{events.TaskSent, events.TaskFailed, "a", `a"`, `a\`, "a}", "{[", "task-sen"}).Draw(t, "type"),
			Name: text.Draw(t, "name"), Args: text.Draw(t, "args"), Exception: text.Draw(t, "exception"), NodeID: text.Draw(t, "node"),
		}
		if rapid.Bool().Draw(t, "fields") {
			e.Fields = map[string]any{text.Draw(t, "key"): []any{text.Draw(t, "value"), map[string]any{text.Draw(t, "k"): nil}, []any{}}}
		}
		return e
	})
}

// split returns the events of a message, and messages made by joinEvents decode to the same events.
func TestSplitAndPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := rapid.SliceOfN(anyEvent(), 1, events.MaxBatch).Draw(t, "events")
		message, err := events.Encode(es)
		if err != nil {
			t.Fatal(err)
		}
		want, err := events.Decode(message)
		if err != nil {
			t.Fatal(err)
		}
		parts := split(message, len(es))
		if len(parts) != len(es) {
			t.Fatalf("%d parts of %d events in %s", len(parts), len(es), message)
		}
		for i, p := range parts {
			got, err := events.Decode(p)
			if err != nil || len(got) != 1 || !cmp.Equal(got[0], want[i]) || !json.Valid(p) {
				t.Fatalf("part %d is %s: %v", i, p, err)
			}
			for _, typ := range []string{events.TaskSent, "a", "task-sen", `a"`, `a\`} {
				if is := bytes.HasPrefix(p, prefixOf(typ)); is != (es[i].Type == typ) {
					t.Fatalf("%s is of type %q: %v", p, typ, is)
				}
			}
		}
		limit := rapid.IntRange(1, 2000).Draw(t, "limit")
		var got []events.Event
		for _, m := range joinEvents(parts, limit) {
			one, err := events.Decode(m)
			if err != nil {
				t.Fatalf("packed %s: %v", m, err)
			}
			if len(m) > limit && len(one) > 1 {
				t.Fatalf("%d events are packed into %d bytes, above %d", len(one), len(m), limit)
			}
			got = append(got, one...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("packed events (-want +got):\n%s", diff)
		}
	})
}

func TestPrefixOfNoType(t *testing.T) {
	if p := prefixOf("no type"); p != nil {
		t.Errorf("events of what is no type begin with %q", p)
	}
}

func TestSplitOfNonsenseEnds(t *testing.T) {
	for _, s := range []string{"", "[", "]", `"`, `[{"a`, "[]]]]}}}", `[{"a\`, "{}"} {
		for _, p := range split([]byte(s), 1) {
			if !bytes.Contains([]byte(s), p) {
				t.Errorf("split(%q) holds %q", s, p)
			}
		}
	}
}
