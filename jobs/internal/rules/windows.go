package rules

import (
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/when"
)

// Windows parses the windows of jobs and caches the results. The zero value is ready for use. Safe
// for concurrent use.
type Windows struct {
	mu   sync.Mutex
	read map[string]*when.Windows
}

// maxWindowTexts limits the number of cached windows.
const maxWindowTexts = 256

// of returns the parsed windows of j, which are the times at which j may start; nil if j has no
// windows. Results are cached, errors are not. A full cache of maxWindowTexts results is first
// emptied. Returns an error that wraps ErrBadJob if they cannot be parsed. It takes c.mu.
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
		return nil, fmt.Errorf("%w: the windows of job %d are not windows of time: %.100q", jobstore.ErrBadJob, j.ID, j.Window)
	}
	if c.read == nil || len(c.read) >= maxWindowTexts {
		c.read = map[string]*when.Windows{}
	}
	c.read[j.Window] = w
	return w, nil
}

// Opens returns the first time at or after t at which j may start; t itself if j has no windows or
// they are open. If its windows cannot be parsed here, for example because of an unknown zone, it
// returns t plus windowHold and the error. The caller then holds the job until that time. Times
// after the year 9999 become its last microsecond. It takes c.mu through of. Safe for concurrent
// use.
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

// windowHold is the time for which a job is held whose windows cannot be parsed.
const windowHold = time.Minute

// Place returns the time at which j may run if it should run at the time at. It returns at itself
// if j has no windows, if they are open then, or if they cannot be parsed. Otherwise it returns
// their next opening. A past time at counts as now, but is returned unchanged if j may start now.
func (c *Windows) Place(j *jobstore.Row, at, now time.Time) time.Time {
	if j.Window == "" {
		return at
	}
	from := at
	if from.Before(now) {
		from = now
	}
	// The leader handles unparsable windows when the job should start.
	if open, err := c.Opens(j, from); err == nil && open.After(from) {
		return open
	}
	return at
}
