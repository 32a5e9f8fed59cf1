package pages

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

// TestChart shows that the parts of a column stand on each other within the chart, and that each
// part can be seen. The table has only the minutes with tasks.
func TestChart(t *testing.T) {
	since := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	minute := func(n int, r inspect.Rates) inspect.Rates {
		r.Since = since.Add(time.Duration(n) * time.Minute)
		return r
	}
	p := inspect.RatePage{Minutes: []inspect.Rates{
		minute(0, inspect.Rates{}), minute(1, inspect.Rates{Sent: 4}), minute(2, inspect.Rates{Succeeded: 1 << 50, Retried: 1, Failed: 1}),
		minute(3, inspect.Rates{Succeeded: 1 << 49}),
	}}
	c := chart(p)
	if c.Width != 4*minuteWidth || c.Most != 1<<50+2 || !c.Since.Equal(since) || !c.Before.Equal(since.Add(4*time.Minute)) {
		t.Errorf("the chart is %+v", c)
	}
	if len(c.Minutes) != 3 || c.Minutes[0].Succeeded != 1<<49 || c.Minutes[2].Sent != 4 {
		t.Errorf("the table has %+v", c.Minutes)
	}
	bottom := map[int]int{} // by x
	for _, b := range c.Blocks {
		if bottom[b.X] == 0 {
			bottom[b.X] = ratesHeight
		}
		if b.H < 1 || b.Y < 0 || b.Y+b.H != bottom[b.X] {
			t.Errorf("a part of a column: %+v, below it %d", b, bottom[b.X])
		}
		bottom[b.X] = b.Y
	}
	if len(c.Blocks) != 4 || c.Blocks[3].H != 1+(ratesHeight-3)/2 {
		t.Errorf("the parts are %+v", c.Blocks)
	}
	if chart(inspect.RatePage{}) != nil {
		t.Error("no minutes have a chart")
	}
}
