package broker_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
)

// TestRate takes messages at random times, as soon as the rate allows them, and compares the times
// with the promise of Bound.Rate.
func TestRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := broker.Bound{Rate: rapid.IntRange(1, 20).Draw(t, "rate"), Per: rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "per")}
		per := max(b.Per, time.Second)
		now, used := time.Unix(1000, 0), time.Time{}
		var taken []time.Time
		for range rapid.IntRange(1, 100).Draw(t, "messages") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(per/4)).Draw(t, "pause")))
			if free := b.FreeAt(used); now.Before(free) {
				now = free
			}
			used = b.Use(used, now)
			taken = append(taken, now)
			if len(taken) <= b.Rate && !now.Equal(taken[len(taken)-1]) {
				t.Fatal("the first messages wait")
			}
		}
		for i := range taken {
			within := 0
			for _, at := range taken[i:] {
				if at.Sub(taken[i]) < per {
					within++
				}
			}
			if within >= max(2*b.Rate, 2) {
				t.Fatalf("%d messages in %v, want fewer than %d", within, per, 2*b.Rate)
			}
		}
		if free := b.FreeAt(used.Add(-per)); free.After(used) {
			t.Fatalf("free at %v after %v", free, used)
		}
	})
}

// TestRateBurst takes ten messages of a rate of ten in a second at once, then one each 100 ms.
func TestRateBurst(t *testing.T) {
	b, begin := broker.Bound{Rate: 10}, time.Unix(1000, 0)
	var used time.Time
	for i := range 30 {
		now := begin
		if free := b.FreeAt(used); free.After(now) {
			now = free
		}
		want := begin.Add(max(0, time.Duration(i-9)) * 100 * time.Millisecond)
		if !now.Equal(want) {
			t.Fatalf("message %d at %v, want %v", i, now.Sub(begin), want.Sub(begin))
		}
		used = b.Use(used, now)
	}
}

func TestBoundsOfAKey(t *testing.T) {
	b := broker.Bounds{Key: broker.Bound{Max: 3}, Keys: map[string]broker.Bound{"big": {Max: 9}, "free": {}}}
	for key, most := range map[string]int{"": 3, "a": 3, "big": 9, "free": 0} {
		if got := b.Of(key).Max; got != most {
			t.Errorf("the Max of %q is %d, want %d", key, got, most)
		}
	}
	if b.IsZero() || !b.HasMax() || !(broker.Bounds{Keys: map[string]broker.Bound{"free": {}}}).IsZero() {
		t.Error("IsZero or HasMax is wrong")
	}
	if rate := (broker.Bounds{All: broker.Bound{Rate: 1}}); rate.IsZero() || rate.HasMax() {
		t.Error("a rate is no bound, or is a Max")
	}
}

func TestCheckBounds(t *testing.T) {
	many := map[string]broker.Bound{}
	for i := range broker.MaxBoundKeys {
		many[fmt.Sprint(i)] = broker.Bound{Max: 1}
	}
	good := broker.Bounds{Key: broker.Bound{Max: 1, Rate: 1_000_000}, All: broker.Bound{Rate: 5, Per: time.Hour}, Keys: maps.Clone(many)}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	many["one more"] = broker.Bound{}
	for name, bad := range map[string]broker.Bounds{
		"max":  {Key: broker.Bound{Max: -1}},
		"rate": {All: broker.Bound{Rate: -1}},
		"per":  {Keys: map[string]broker.Bound{"a": {Per: -1}}},
		"fast": {Key: broker.Bound{Rate: 2_000_000}},
		"key":  {Keys: map[string]broker.Bound{"a\nb": {}}},
		"many": {Keys: many},
	} {
		if err := bad.Check(); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
	for _, bad := range []float64{-1, 0.51, math.NaN()} {
		if err := broker.CheckOptions(broker.SubscribeOptions{Floor: bad}); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("the floor %g: %v", bad, err)
		}
	}
}

func TestRefuseBounds(t *testing.T) {
	err := broker.RefuseBounds("mail", broker.SubscribeOptions{Bounds: broker.Bounds{Key: broker.Bound{Max: 1}}})
	if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), `"mail"`) || !strings.Contains(err.Error(), "Redis") {
		t.Errorf("it is %v", err)
	}
	if err := broker.RefuseBounds("mail", broker.SubscribeOptions{Floor: 0.1}); err != nil {
		t.Error(err)
	}
}
