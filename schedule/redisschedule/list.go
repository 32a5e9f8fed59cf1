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

// Get implements [schedule.Lister]: it returns an entry, or [schedule.ErrNotFound]. It waits for
// the server. Other errors are wrapped by wrap.
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

// ownCursor is the prefix of cursors for this library's own layout. Its entries are listed after
// the published ones.
const ownCursor = "swarmiji "

// List implements [schedule.Lister]. It returns a page of about limit entries in no particular
// order, and the cursor of the next page; "" after the last page. The first pages contain the
// entries in the keys that WorkKit published, the later ones those in this library's own keys. A
// page may be empty, and an entry may come twice. Errors are wrapped by wrap. If the server's
// answer has an unexpected form, the error is [schedule.ErrUnavailable].
func (s *Store) List(ctx context.Context, cursor string, limit int) ([]schedule.Entry, string, error) {
	from, behind := strings.CutPrefix(cursor, ownCursor)
	jobs := s.published.jobs
	if behind {
		jobs = s.own.jobs
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
		return entries, ownCursor + cursor, nil
	case cursor == "0":
		return entries, ownCursor, nil
	}
	return entries, cursor, nil
}

// show returns the entries with these ids, with one call to the server. The answer has seven values
// for each id: payload, score, pause, state, last instant, last runs and group. Ids that do not
// exist are left out. An entry whose due time cannot be read gets none. Returns errors of the
// server, and [schedule.ErrUnavailable] for an answer of another form.
func (s *Store) show(ctx context.Context, ids []string) ([]schedule.Entry, error) {
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, id, member(id))
	}
	v, err := s.eval(ctx, "show", s.scripts.show, s.all(), args...)
	if err != nil {
		return nil, err
	}
	const width = 7
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
		setOwn(&e, row[3:])
		entries = append(entries, e)
	}
	return entries, nil
}

// Pause implements [schedule.Pauser]: it removes an entry's due time until Resume. Claims on its
// ticks stay. Returns [schedule.ErrNotFound] if the entry does not exist. Other errors are wrapped
// by wrap.
func (s *Store) Pause(ctx context.Context, id string) error {
	return notFoundIfZero(s.number(ctx, "pause", s.scripts.pause, id, member(id)))
}

// Resume implements [schedule.Pauser]: it ends an entry's pause and sets its due time to next; a
// zero next sets no due time. An entry that is not paused stays as it is. Returns
// [schedule.ErrNotFound] if the entry does not exist. Other errors are wrapped by wrap.
func (s *Store) Resume(ctx context.Context, id string, next time.Time) error {
	at := ""
	if !next.IsZero() {
		at = strconv.FormatInt(next.UnixMilli(), 10)
	}
	return notFoundIfZero(s.number(ctx, "resume", s.scripts.resume, id, member(id), at))
}

// notFoundIfZero returns err if it is not nil. Otherwise it returns [schedule.ErrNotFound] if the
// script's answer n is 0, which means that the entry does not exist.
func notFoundIfZero(n int64, err error) error {
	if err == nil && n == 0 {
		return schedule.ErrNotFound
	}
	return err
}

// scan is the number of elements that the server examines in one step of a search.
const scan = 1000

// Unscheduled implements [schedule.Repairer]: it returns the entries that would never become due.
// They have no due time and no claim and are not paused. It changes nothing.
//
// It examines all entries, a thousand with each call to the server, so that other clients are not
// blocked. An entry that changes meanwhile may be among them. After an error, wrapped by wrap, it
// returns no entries.
func (s *Store) Unscheduled(ctx context.Context) ([]schedule.Entry, error) {
	ids := map[string]bool{}
	for _, l := range []*layout{&s.published, &s.own} {
		some := map[string]bool{}
		if err := s.scanKey(ctx, "unscheduled", s.scripts.unscheduled, l.keys(), func(id string) { some[id] = true }); err != nil {
			return nil, err
		}
		if err := s.deleteClaimed(ctx, l, some); err != nil {
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

// deleteClaimed deletes from the map those ids that have a claim in the layout. Each member of the
// sorted set that is not an entry's own is a claim, for every id of idsOf. It changes nothing in
// Redis. With an empty map it does nothing. After an error of the server the map may still contain
// ids with a claim.
func (s *Store) deleteClaimed(ctx context.Context, l *layout, ids map[string]bool) error {
	if len(ids) == 0 {
		return nil
	}
	return s.scanKey(ctx, "claims", s.scripts.claims, []string{l.next}, func(m string) {
		for _, id := range idsOf(m) {
			delete(ids, id)
		}
	})
}

// scanKey calls a script that scans a key, until the scan is complete, and calls each with every
// element. An element may come twice. It returns after the first error; each may have been called
// before. An answer of another form is [schedule.ErrUnavailable].
func (s *Store) scanKey(ctx context.Context, what string, script *redisconn.Script, keys []string, each func(string)) error {
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

// Repair implements [schedule.Repairer]: it sets the due time of an entry that has no due time and
// is not paused to next. It does not look at claims. It reports whether it set the time: false for
// other entries and for ids that do not exist. Errors are wrapped by wrap.
func (s *Store) Repair(ctx context.Context, id string, next time.Time) (bool, error) {
	n, err := s.number(ctx, "repair", s.scripts.repair, id, member(id), next.UnixMilli())
	return n == 1, err
}
