package settings_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
)

func TestBoundQueue(t *testing.T) {
	s := memsettings.New()
	change := func(b settings.Bounds) {
		t.Helper()
		if err := settings.BoundQueue(t.Context(), s, "mail", b); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() settings.Bounds {
		t.Helper()
		values, err := s.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		b := settings.Read(values).QueueBounds["mail"]
		b.At = b.At.UTC().Truncate(0)
		if !b.IsZero() && b.At.IsZero() {
			t.Error("the bounds have no time")
		}
		return b
	}
	want := func(w settings.Bounds) {
		t.Helper()
		got := stored()
		w.At = got.At
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	three, free := &settings.Bound{Max: 3}, &settings.Bound{}
	change(settings.Bounds{Key: three, By: "ann"})
	change(settings.Bounds{Keys: map[string]settings.Bound{"big": {Max: 9}, "": {Rate: "5/s"}}, By: "bob"})
	change(settings.Bounds{All: free, Keys: map[string]settings.Bound{"big": {Max: 10}}})
	want(settings.Bounds{Key: three, All: free, Keys: map[string]settings.Bound{"big": {Max: 10}, "": {Rate: "5/s"}}})
	for _, c := range []struct {
		keys  []string
		found bool
	}{{[]string{"other"}, false}, {[]string{"big"}, true}, {[]string{"big"}, false}} {
		if found, err := settings.UnboundQueue(t.Context(), s, "mail", c.keys...); err != nil || found != c.found {
			t.Errorf("UnboundQueue(%v): %v, %v, want %v", c.keys, found, err, c.found)
		}
	}
	want(settings.Bounds{Key: three, All: free, Keys: map[string]settings.Bound{"": {Rate: "5/s"}}})
	if found, err := settings.UnboundQueue(t.Context(), s, "mail"); err != nil || !found {
		t.Errorf("UnboundQueue: %v, %v", found, err)
	}
	change(settings.Bounds{Keys: map[string]settings.Bound{"a": {Max: 1}}})
	if found, err := settings.UnboundQueue(t.Context(), s, "mail", "a"); err != nil || !found {
		t.Errorf("UnboundQueue of the last key: %v, %v", found, err)
	}
	if values, err := s.List(t.Context(), ""); err != nil || len(values) != 0 {
		t.Errorf("%v, %v are left", values, err)
	}
}

func TestBadBounds(t *testing.T) {
	many := map[string]settings.Bound{}
	for i := range settings.MaxBoundKeys + 1 {
		many[fmt.Sprint(i)] = settings.Bound{Max: 1}
	}
	for name, bad := range map[string]settings.Bounds{
		"max":  {Key: &settings.Bound{Max: -1}},
		"rate": {All: &settings.Bound{Rate: "often"}},
		"key":  {Keys: map[string]settings.Bound{"\xff": {}}},
		"many": {Keys: many},
	} {
		if err := settings.BoundQueue(t.Context(), memsettings.New(), "mail", bad); !errors.Is(err, settings.ErrBad) {
			t.Errorf("%s: %v, want ErrBad", name, err)
		}
	}
}
