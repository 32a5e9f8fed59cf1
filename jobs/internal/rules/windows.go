package rules

import (
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/when"
)

// Windows reads the windows of jobs, and caches them. The zero value is ready. Safe for concurrent
// use.
type Windows struct {
	mu   sync.Mutex
	read map[string]*when.Windows
}

// maxWindowTexts is how many windows are cached.
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

// Opens returns the first time at or after t at which the windows of j let it start. err says that
// this process cannot read them, such as for an unknown zone. The job is then held until at.
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

// windowHold is how long a job is held whose windows cannot be read.
const windowHold = time.Minute

// Place returns when j is to run that is wanted at a time. If that time is to come, the first
// opening from then on counts; else the first opening from now on. A job wanted in the past that
// may start now keeps its time.
func (c *Windows) Place(j *jobstore.Row, at, now time.Time) time.Time {
	if j.Window == "" {
		return at
	}
	from := at
	if from.Before(now) {
		from = now
	}
	// Unreadable windows are handled when the job is to start.
	if open, err := c.Opens(j, from); err == nil && open.After(from) {
		return open
	}
	return at
}
