package redisschedule

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// Get implements [schedule.Lister].
func (s *Store) Get(ctx context.Context, id string) (schedule.Entry, error) {
	entries, err := s.show(ctx, []string{id})
	if err != nil {
		return schedule.Entry{}, err
	}
	if len(entries) == 0 {
		return schedule.Entry{}, schedule.ErrNotFound
	}
	return entries[0], nil
}

// second begins the cursors of the entries that lie in our own layout, which come behind the
// others.
const second = "swarmiji "

// List implements [schedule.Lister].
func (s *Store) List(ctx context.Context, cursor string, limit int) ([]schedule.Entry, string, error) {
	from, behind := strings.CutPrefix(cursor, second)
	jobs := s.theirs.jobs
	if behind {
		jobs = s.ours.jobs
	}
	if from == "" {
		from = "0"
	}
	v, err := s.conn.Do(ctx, "HSCAN", jobs, from, "COUNT", max(limit, 1))
	if err != nil {
		return nil, "", wrap("list", err)
	}
	page, ok := v.([]any)
	if !ok || len(page) != 2 {
		return nil, "", fmt.Errorf("redisschedule list: %w: the answer is a %T", schedule.ErrUnavailable, v)
	}
	pairs, _ := page[1].([]any)
	var ids []string
	for i := 0; i+1 < len(pairs); i += 2 {
		ids = append(ids, text(pairs[i]))
	}
	var entries []schedule.Entry
	for len(ids) > 0 {
		n := min(len(ids), batch)
		more, err := s.show(ctx, ids[:n])
		if err != nil {
			return nil, "", err
		}
		entries, ids = append(entries, more...), ids[n:]
	}
	switch cursor = text(page[0]); {
	case behind && cursor == "0":
		return entries, "", nil
	case behind:
		return entries, second + cursor, nil
	case cursor == "0":
		return entries, second, nil
	}
	return entries, cursor, nil
}

// show reads entries; those that are gone are left out.
func (s *Store) show(ctx context.Context, ids []string) ([]schedule.Entry, error) {
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, id, member(id))
	}
	v, err := s.eval(ctx, "show", s.scripts.show, s.all(), args...)
	if err != nil {
		return nil, err
	}
	const width = 5
	list, ok := v.([]any)
	if !ok || len(list) != width*len(ids) {
		return nil, fmt.Errorf("redisschedule show: %w: the answer is a %T of %d", schedule.ErrUnavailable, v, len(list))
	}
	var entries []schedule.Entry
	for i, id := range ids {
		row := list[width*i : width*(i+1)]
		if row[0] == nil {
			continue
		}
		e := schedule.Entry{ID: id, Payload: []byte(text(row[0])), Paused: row[2] != nil}
		if at, err := instant(text(row[1])); err == nil {
			e.Next = at
		}
		keep(&e, row[3], row[4])
		entries = append(entries, e)
	}
	return entries, nil
}

// Pause implements [schedule.Pauser].
func (s *Store) Pause(ctx context.Context, id string) error {
	return there(s.number(ctx, "pause", s.scripts.pause, id, member(id)))
}

// Resume implements [schedule.Pauser].
func (s *Store) Resume(ctx context.Context, id string, next time.Time) error {
	at := ""
	if !next.IsZero() {
		at = strconv.FormatInt(next.UnixMilli(), 10)
	}
	return there(s.number(ctx, "resume", s.scripts.resume, id, member(id), at))
}

func there(n int64, err error) error {
	if err == nil && n == 0 {
		return schedule.ErrNotFound
	}
	return err
}

// scan is how many members the server looks at in one step of a search.
const scan = 1000

// Astray implements [schedule.Mender]. It looks at all entries, a thousand at a time, so that nobody waits for it.
func (s *Store) Astray(ctx context.Context) ([]schedule.Entry, error) {
	ids := map[string]bool{}
	for _, l := range []*layout{&s.theirs, &s.ours} {
		some := map[string]bool{}
		if err := s.through(ctx, "astray", s.scripts.astray, l.keys(), func(id string) { some[id] = true }); err != nil {
			return nil, err
		}
		if err := s.claimed(ctx, l, some); err != nil {
			return nil, err
		}
		maps.Copy(ids, some)
	}
	var entries []schedule.Entry
	for id := range ids {
		found, err := s.show(ctx, []string{id})
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if e.Next.IsZero() && !e.Paused {
				entries = append(entries, e)
			}
		}
	}
	return entries, nil
}

// claimed takes away those of the ids that a claim names, or another member that is not of our
// form.
func (s *Store) claimed(ctx context.Context, l *layout, ids map[string]bool) error {
	if len(ids) == 0 {
		return nil
	}
	return s.through(ctx, "claims", s.scripts.claims, []string{l.next}, func(m string) {
		for _, id := range idsOf(m) {
			delete(ids, id)
		}
	})
}

// through runs a script that goes through a key step by step.
func (s *Store) through(ctx context.Context, what string, script *redisconn.Script, keys []string, each func(string)) error {
	for cursor := "0"; ; {
		v, err := s.eval(ctx, what, script, keys, cursor, scan)
		if err != nil {
			return err
		}
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return fmt.Errorf("redisschedule %s: %w: the answer is a %T", what, schedule.ErrUnavailable, v)
		}
		for _, x := range list[1:] {
			each(text(x))
		}
		if cursor = text(list[0]); cursor == "0" || strings.TrimSpace(cursor) == "" {
			return nil
		}
	}
}

// Mend implements [schedule.Mender].
func (s *Store) Mend(ctx context.Context, id string, next time.Time) (bool, error) {
	n, err := s.number(ctx, "mend", s.scripts.mend, id, member(id), next.UnixMilli())
	return n == 1, err
}
