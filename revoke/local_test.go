package revoke_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// TestLocal shows that a list without a bus is ready, knows its revocations until they end, and
// stores a limited number.
func TestLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := revoke.NewLocal(quiet())
		ready(t, l)
		var heard []task.ID
		stop := l.Watch(func(v revoke.Revocation) { heard = append(heard, v.IDs...) })
		if err := l.Revoke(t.Context(), revoke.Options{}, "a", "b"); err != nil {
			t.Fatal(err)
		}
		stop()
		check(t, l, "a", true)
		check(t, l, "c", false)
		if len(heard) != 2 {
			t.Errorf("watchers heard of %v", heard)
		}
		if err := l.Revoke(t.Context(), revoke.Options{}, "c", "a b"); !errors.Is(err, task.ErrBadID) {
			t.Errorf("a bad id: %v", err)
		}
		check(t, l, "c", false)
		many := make([]task.ID, revoke.DefaultMax)
		for i := range many {
			many[i] = task.ID(fmt.Sprintf("n-%d", i))
		}
		if err := l.Revoke(t.Context(), revoke.Options{}, many...); err != nil {
			t.Fatal(err)
		}
		check(t, l, "a", false) // the oldest
		check(t, l, "n-0", true)
		time.Sleep(revoke.DefaultUntil + revoke.Keep)
		check(t, l, "n-0", false)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestListRevokes shows that a list knows its own revocations at once, even if the bus does not
// answer. Other lists know them when Revoke returns nil.
// Promises: S69.
func TestListRevokes(t *testing.T) {
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	l, other := newList(t, revoke.Config{Events: bus}), newList(t, revoke.Config{Events: bus})
	ready(t, l)
	if err := l.Revoke(t.Context(), revoke.Options{}, "a"); err != nil {
		t.Fatal(err)
	}
	ready(t, other)
	check(t, l, "a", true)
	check(t, other, "a", true)
	if err := l.Revoke(t.Context(), revoke.Options{Until: time.Now().Add(revoke.Retention().Age)}, "b"); !errors.Is(err, revoke.ErrTooLong) {
		t.Errorf("for longer than the bus keeps: %v", err)
	}
	check(t, l, "b", true)
	check(t, other, "b", false)
}
