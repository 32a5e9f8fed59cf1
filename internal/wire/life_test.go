package wire_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// TestBeginLife shows that a new life begins once. It resets the counts and the times of the
// submission in each layer; the copies of that life keep their own counts.
func TestBeginLife(t *testing.T) {
	past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	base := task.Metadata{Expires: task.Set(past), MaxRetries: task.Set(7)}
	e := &task.Envelope{
		ID: "a", Name: "a", Retries: 3, Parked: 2, Crashes: 1, Copy: "first", Base: &base,
		Meta: task.Metadata{NotBefore: task.Set(past), Expires: task.Set(past), TimeLimit: task.Set(time.Second)},
	}
	m, err := msgpack.Compact{}.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = 5
	m.Properties = map[string]string{"expiration": "1000", "type": "own"}
	before := *e
	if wire.BeginLife(e, m, false); !cmp.Equal(&before, e, opts()...) {
		t.Fatal("a message of the first life began another one")
	}
	next := wire.NewLife(m, "again")
	if next.Generation != wire.FirstGeneration(1) || !next.Expires.IsZero() || wire.Life(next) != 1 || next.Properties["expiration"] != "" || next.Properties["type"] != "own" {
		t.Fatalf("the message of the next life is %+v", next)
	}
	wire.BeginLife(e, next, false)
	want := before
	want.Retries, want.Parked, want.Crashes, want.Life, want.Copy = 0, 0, 0, 1, "again"
	want.Meta.NotBefore, want.Meta.Expires = task.Set(time.Time{}), task.Set(time.Time{})
	if d := cmp.Diff(&want, e, opts()...); d != "" {
		t.Fatalf("the new life (-want +got):\n%s", d)
	}
	if merged := task.Merge(*e.Base, task.Metadata{Expires: task.Set(past)}, e.Meta); !merged.Expires.Or(past).IsZero() {
		t.Errorf("it still expires: %v", merged.Expires.Or(past))
	}
	sealed := before
	if wire.BeginLife(&sealed, next, true); sealed.Life != 1 || !sealed.Meta.Expires.Or(time.Time{}).Equal(past) {
		t.Errorf("a sealed task in its life %d expires at %v, want 1 and %v", sealed.Life, sealed.Meta.Expires.Or(time.Time{}), past)
	}
	e.Retries = 2 // a retry of the same life
	if wire.BeginLife(e, next, false); e.Retries != 2 {
		t.Error("a copy of the same life began it anew")
	}
	wire.BeginLife(e, wire.NewLife(next, "third"), false)
	if e.Life != 2 || e.Retries != 0 {
		t.Errorf("life %d, retries %d; want 2 and 0", e.Life, e.Retries)
	}
	forged := &broker.Message{Headers: map[string]any{wire.HeaderLife: int64(-4), wire.HeaderLifeCopy: "\xff"}}
	if wire.Life(forged) != 0 || wire.LifeCopy(forged) != "" {
		t.Errorf("life %d, copy %q of a forged message", wire.Life(forged), wire.LifeCopy(forged))
	}
}

func opts() []cmp.Option {
	return []cmp.Option{cmpopts.EquateEmpty(), cmp.AllowUnexported(
		task.Opt[string]{}, task.Opt[int]{}, task.Opt[bool]{}, task.Opt[time.Duration]{}, task.Opt[time.Time]{})}
}
