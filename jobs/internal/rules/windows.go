package rules

import (
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/when"
)

// Windows reads the windows of jobs, and keeps what it has read. The zero value is ready. Safe for
// concurrent use.
type Windows struct {
	mu   sync.Mutex
	read map[string]*when.Windows
}

// maxWindowTexts is how many windows are remembered.
const maxWindowTexts = 256

// of returns the windows of j, nil if it has none.
func (c *Windows) of(j *jobstore.Row) (*when.Windows, error) {
	if j.Window == "" {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.read[j.Window]; w != nil {
		return w, nil
	}
	spec, err := when.Parse(j.Window)
	if err != nil {
		return nil, fmt.Errorf("%w: the windows of job %d: %w", jobstore.ErrBadJob, j.ID, err)
	}
	w, ok := spec.(*when.Windows)
	if !ok {
		return nil, fmt.Errorf("%w: the windows of job %d are none: %.100q", jobstore.ErrBadJob, j.ID, j.Window)
	}
	if c.read == nil || len(c.read) >= maxWindowTexts {
		c.read = map[string]*when.Windows{}
	}
	c.read[j.Window] = w
	return w, nil
}

// Opens returns the first moment at or after t at which j may start, as far as its windows go. err says that this process cannot read them, as where it does not
// know their zone: then j is held for a while.
func (c *Windows) Opens(j *jobstore.Row, t time.Time) (at time.Time, err error) {
	w, err := c.of(j)
	switch {
	case err != nil:
		return Storable(t.Add(windowHold)), err
	case w == nil:
		return t, nil
	}
	return Storable(w.NextOpen(t)), nil
}

// windowHold is for how long a job is held whose windows cannot be read.
const windowHold = time.Minute

// Place returns when j is to run that is wanted at a time: then, if that is to come and a window is open, else at the first opening from then, or from now, on. What
// is wanted at a time in the past, and may start now, keeps its time.
func (c *Windows) Place(j *jobstore.Row, at, now time.Time) time.Time {
	if j.Window == "" {
		return at
	}
	from := at
	if from.Before(now) {
		from = now
	}
	// Windows that cannot be read here are looked at when the job is to start.
	if open, err := c.Opens(j, from); err == nil && open.After(from) {
		return open
	}
	return at
}
