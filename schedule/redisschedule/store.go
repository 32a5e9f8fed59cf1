package redisschedule

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/schedule"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts holds the Lua scripts. Each file documents its arguments and its result.
type scripts struct {
	add, due, claim, renew, done, remove, drop, show, pause, resume, unscheduled, claims, repair, change *redisconn.Script
}

// loadScripts builds all scripts from the embedded files. It returns an error if a file is missing.
func loadScripts() (*scripts, error) {
	s := &scripts{}
	var errs []error
	for name, to := range map[string]**redisconn.Script{
		"add": &s.add, "due": &s.due, "claim": &s.claim, "renew": &s.renew, "done": &s.done, "remove": &s.remove, "drop": &s.drop,
		"show": &s.show, "pause": &s.pause, "resume": &s.resume, "unscheduled": &s.unscheduled, "claims": &s.claims, "repair": &s.repair,
		"change": &s.change,
	} {
		text, err := scriptText(name)
		errs = append(errs, err)
		*to = redisconn.NewScript(text)
	}
	return s, errors.Join(errs...)
}

// scriptText returns the text of a script from lua/name.lua. The first line, which may hold flags
// for the server, stays first. Then follows layout.lua if the script calls its layout_of, then the
// rest. Returns an error if a file is missing.
func scriptText(name string) (string, error) {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return "", err
	}
	layout, err := sources.ReadFile("lua/layout.lua")
	if err != nil {
		return "", err
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if strings.Contains(rest, "layout_of(") {
		rest = string(layout) + rest
	}
	return first + "\n" + rest, nil
}

const (
	// batch is the number of items for one script call, which blocks the server for about a
	// millisecond.
	batch = 256
	// maxBytes limits the payloads in one answer of Due.
	maxBytes = 8 << 20
)

// Store stores a schedule in Redis. Make one with [New]. Safe for concurrent use.
//
// Each call is repeated until the server answers or ctx ends. Repeating is harmless. But the server
// may have executed a call whose answer was lost. Add may then return false for a new entry, and
// Done false for a claim that was held.
type Store struct {
	c         Config
	conn      *redisconn.Conn
	scripts   *scripts
	published layout      // WorkKit's published keys
	own       layout      // entries with a name, or that seven cron fields in UTC cannot express
	checked   atomic.Bool // the server's settings were checked
}

// layout holds the names of the keys for one group of entries: the hash of payloads (jobs), the
// sorted set of due times (next), and the hash S:swarmiji, which both groups share (own).
type layout struct{ jobs, next, own string }

// keys returns the three names.
func (l *layout) keys() []string { return []string{l.jobs, l.next, l.own} }

// all returns the keys of both layouts, in the order that the scripts expect.
func (s *Store) all() []string { return append(s.published.keys(), s.own.jobs, s.own.next) }

var (
	_ schedule.Store    = (*Store)(nil)
	_ schedule.Lister   = (*Store)(nil)
	_ schedule.Pauser   = (*Store)(nil)
	_ schedule.Repairer = (*Store)(nil)
	_ schedule.Changer  = (*Store)(nil)
	_ schedule.Named    = (*Store)(nil)
)

// Name returns the schedule's name. See [schedule.Named].
func (s *Store) Name() string { return s.c.Name }

// Close ends waiting calls and closes the connections. It returns the error of ctx if ctx ends
// first. Claims stay until their leases end. Close is idempotent.
func (s *Store) Close(ctx context.Context) error { return s.conn.Close(ctx) }

// Add implements [schedule.Store]: it adds entries and returns for each whether it is new. An
// existing entry is not changed, with one exception: if it has no due time and no claim and is not
// paused, it gets its Next, unless it is a one-shot entry ([fixed]).
//
// Entries that seven cron fields in UTC cannot express go to keys of their own. If an entry is
// invalid, Add adds nothing and returns [schedule.ErrBadEntry]. After another error some may have
// been added. Without entries it sends a PING and returns its error.
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var errs []error
	places := make([]int, len(entries)) // index of the layout for each entry
	for i := range entries {
		errs = append(errs, entries[i].Check())
		if c, err := schedule.Decode(entries[i].Payload); err == nil && c.Zoned {
			places[i] = 1
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	added := make([]bool, len(entries))
	for place, l := range []*layout{&s.published, &s.own} {
		var some []int
		for i := range entries {
			if places[i] == place {
				some = append(some, i)
			}
		}
		if len(some) == 0 && (place > 0 || len(entries) > 0) {
			continue
		}
		if err := s.add(ctx, l, entries, some, added); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// add adds the entries with the given indexes to a layout, and sets their results in added. Then it
// repairs existing entries that have no due time, claim or pause, except one-shot entries. For this
// it scans all members of the layout's sorted set. It returns the first error; some entries may be
// added then.
func (s *Store) add(ctx context.Context, l *layout, entries []schedule.Entry, some []int, added []bool) error {
	args := make([]any, 0, 5*len(some))
	for _, i := range some {
		e := &entries[i]
		args = append(args, e.ID, e.Payload, member(e.ID), e.Next.UnixMilli(), flag(e.AtOnce))
	}
	other := s.own.jobs
	if l == &s.own {
		other = s.published.jobs
	}
	answers, err := s.each(ctx, "add", s.scripts.add, append(l.keys(), other), nil, args, 5)
	if err != nil {
		return err
	}
	var known []int
	ids := map[string]bool{}
	for n, i := range some {
		if added[i] = answers[n] == '1'; answers[n] == '2' && !fixed(entries[i].Payload) {
			known = append(known, i)
			ids[entries[i].ID] = true
		}
	}
	return s.repairLost(ctx, l, entries, known, ids)
}

// repairLost gives a due time to the entries with the indexes known. It leaves out entries with a
// due time, a pause, or a claim in the layout. ids holds their ids; it deletes those with a claim
// from this map. Returns the first error of the server.
func (s *Store) repairLost(ctx context.Context, l *layout, entries []schedule.Entry, known []int, ids map[string]bool) error {
	// A member of another form, such as a claim, shows that the entry is in use.
	if err := s.deleteClaimed(ctx, l, ids); err != nil {
		return err
	}
	for _, i := range known {
		if ids[entries[i].ID] {
			if _, err := s.Repair(ctx, entries[i].ID, entries[i].Next); err != nil {
				return err
			}
		}
	}
	return nil
}

// Due implements [schedule.Store]: it returns up to max due ticks without a valid claim, the
// longest overdue first. The payloads of an answer are limited to about maxBytes; then Batch.More
// is set.
//
// It removes members of S:next that name no entry; see Config.OnDrop. If that fails, it returns the
// Batch with the error. The first call also logs warnings about unsafe settings of the server.
func (s *Store) Due(ctx context.Context, max int) (schedule.Batch, error) {
	v, err := s.eval(ctx, "due", s.scripts.due, s.all(), max, s.now(), maxBytes)
	if err != nil {
		return schedule.Batch{}, err
	}
	b, dead, err := readDue(v)
	if err == nil {
		err = s.drop(ctx, dead)
	}
	s.checkSettings(ctx)
	return b, err
}

// checkSettings logs a warning for each unsafe setting of the server. It does nothing after a first
// success. If the server does not answer, the next call tries again; the error is dropped.
func (s *Store) checkSettings(ctx context.Context) {
	if s.checked.CompareAndSwap(false, true) {
		if _, err := s.conn.CheckSettings(ctx); err != nil {
			s.checked.Store(false) // try again with the next call
		}
	}
}

// deadMember is a member of S:next that names no entry.
type deadMember struct{ id, member string }

// drop removes members that name no entry from S:next, unless they changed meanwhile. It logs each
// removed one and calls OnDrop, except for claims whose entry was removed. Without members it does
// nothing. Returns errors of the server.
func (s *Store) drop(ctx context.Context, list []deadMember) error {
	if len(list) == 0 {
		return nil
	}
	args := make([]any, 0, 2*len(list))
	for _, d := range list {
		args = append(args, d.id, d.member)
	}
	gone, err := s.eachBool(ctx, "drop", s.scripts.drop, s.all(), nil, args, 2)
	if err != nil {
		return err
	}
	for i, d := range list {
		if !gone[i] || d.id != "" && isClaim(d.member) { // A claim whose entry was removed ends this way.
			continue
		}
		s.c.Logger.Warn("redisschedule: dropped a member of an entry that does not exist", "schedule", s.c.Name, "member", clip(d.member))
		if s.c.OnDrop != nil {
			s.c.OnDrop(d.member)
		}
	}
	return nil
}

// Claim implements [schedule.Store]: it claims ticks for owner, gives their entries the next due
// time, and returns for each whether owner holds it now. A claim that owner holds already is only
// renewed. A tick that has changed since Due, or whose entry does not exist, gives false. If the
// lease or a claim is invalid, it returns [schedule.ErrBadEntry] and changes nothing. After another
// error some may be claimed.
func (s *Store) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, lease)}
	args := make([]any, 0, 9*len(claims))
	for i := range claims {
		c := &claims[i]
		errs = append(errs, c.Check())
		found, score, _ := found(&c.Tick)
		next := ""
		if !c.Next.IsZero() {
			next = strconv.FormatInt(c.Next.UnixMilli(), 10)
		}
		args = append(args, c.ID, found, score, member(c.ID), claimMember(&c.Tick, owner), c.Due.UnixMilli(), next, flag(c.Owner != ""), flag(c.Remember))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.eachBool(ctx, "claim", s.scripts.claim, s.all(), []any{lease.Milliseconds(), s.now()}, args, 9)
}

// Renew implements [schedule.Store]: the owner's claims on ticks end after lease from now, even if
// they have expired; lease 0 makes the ticks due at once. It returns for each whether owner held
// the claim; if not, nothing changes for it. If owner or lease is invalid, it returns
// [schedule.ErrBadEntry]. After another error some may be renewed.
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := schedule.CheckLease(owner, lease); err != nil {
		return nil, err
	}
	args := make([]any, len(ticks))
	for i := range ticks {
		args[i] = claimMember(&ticks[i], owner)
	}
	return s.eachBool(ctx, "renew", s.scripts.renew, []string{s.published.next, s.own.next}, []any{lease.Milliseconds(), s.now()}, args, 1)
}

// Done implements [schedule.Store]: it ends the owner's claims, stores the states and removes
// entries as each Finish says. It returns for each whether owner held the claim; if not, nothing
// changes for it. If an item is invalid, it returns [schedule.ErrBadEntry] and changes nothing.
// After another error some may be done.
func (s *Store) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, 0)}
	args := make([]any, 0, 8*len(done))
	for i := range done {
		f := &done[i]
		errs = append(errs, f.Check())
		_, _, version := found(&f.Tick)
		remove := ""
		if f.Remove {
			remove = "s"
			if version == "" && fixed(f.Payload) { // it was never changed, so it has only this tick
				remove = "x"
			}
		}
		left, of := "", f.StateOf
		switch {
		case f.State == nil:
		case len(f.State) == 0:
			left = "d"
		default:
			left = "s"
		}
		if of == "" {
			of = f.ID
		}
		args = append(args, f.ID, claimMember(&f.Tick, owner), member(f.ID), remove, left, f.State, of, version)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.eachBool(ctx, "done", s.scripts.done, s.all(), []any{lastLease()}, args, 8)
}

// Remove implements [schedule.Store]: it deletes an entry with its state, and reports whether it
// existed. Claims on its ticks stay until their leases end; then Due drops them. Errors are wrapped
// by wrap.
func (s *Store) Remove(ctx context.Context, id string) (bool, error) {
	n, err := s.number(ctx, "remove", s.scripts.remove, id, member(id))
	return n == 1, err
}

// lastLease returns a time after the ends of all leases, in Unix milliseconds. It is generous,
// because clocks differ.
func lastLease() int64 { return time.Now().Add(2 * schedule.MaxLease).UnixMilli() }

// now returns the time argument of the scripts: Config.Clock in Unix milliseconds. "" means that
// the scripts use the server's time.
func (s *Store) now() string {
	if s.c.Clock == nil {
		return ""
	}
	return strconv.FormatInt(s.c.Clock().UnixMilli(), 10)
}

// eachBool calls a script as each does, and returns for each item whether its answer is "1". After
// an error of each it returns no answers.
func (s *Store) eachBool(ctx context.Context, what string, script *redisconn.Script, keys []string, head, list []any, width int) ([]bool, error) {
	text, err := s.each(ctx, what, script, keys, head, list, width)
	if err != nil {
		return nil, err
	}
	answers := make([]bool, len(text))
	for i := range answers {
		answers[i] = text[i] == '1'
	}
	return answers, nil
}

// each calls a script for the items of a list, up to batch items with each call, and returns one
// character for each item. list holds width arguments for each item; head holds the arguments
// before the items.
//
// After an error, the calls for earlier items have taken effect, and the last one may have. Returns
// [schedule.ErrUnavailable] for an answer of another form. Without items it sends a PING, and
// returns its error.
func (s *Store) each(ctx context.Context, what string, script *redisconn.Script, keys []string, head, list []any, width int) (string, error) {
	if len(list) == 0 {
		// A call without items must fail like others if the server is unavailable.
		_, err := s.conn.Do(ctx, "PING")
		return "", wrap(what, err)
	}
	var answers strings.Builder
	for len(list) > 0 {
		n := min(len(list), batch*width)
		v, err := s.eval(ctx, what, script, keys, append(head[:len(head):len(head)], list[:n]...)...)
		if err != nil {
			return "", err
		}
		text, ok := v.(string)
		if !ok || len(text) != n/width {
			return "", fmt.Errorf("redisschedule %s: %w: the answer is %v", what, schedule.ErrUnavailable, v)
		}
		answers.WriteString(text)
		list = list[n:]
	}
	return answers.String(), nil
}

// number calls a script for one entry and returns its answer, a number. Returns
// [schedule.ErrUnavailable] if the answer is something else.
func (s *Store) number(ctx context.Context, what string, script *redisconn.Script, args ...any) (int64, error) {
	v, err := s.eval(ctx, what, script, s.all(), args...)
	if err != nil {
		return 0, err
	}
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("redisschedule %s: %w: the answer is %v", what, schedule.ErrUnavailable, v)
	}
	return n, nil
}

// eval calls a script and returns its answer. While it is unknown whether the server executed the
// call, eval waits and repeats it, until ctx ends or the store is closed. Other errors are returned
// at once. Errors are wrapped by wrap.
func (s *Store) eval(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) (any, error) {
	for attempt := 0; ; attempt++ {
		v, err := s.conn.Eval(ctx, script, keys, args...)
		if err == nil || !errors.Is(err, redisconn.ErrIndeterminate) || !s.wait(ctx, attempt) {
			return v, wrap(what, err)
		}
	}
}

// wait sleeps before the next attempt. It returns false if ctx or the connection ended, without
// waiting longer.
func (s *Store) wait(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, s.conn.Done(), s.conn.Backoff().Interval(attempt))
}

// wrap returns err with the operation what in its text. It adds [schedule.ErrClosed] after Close,
// and [schedule.ErrUnavailable] if the server did not answer, or refused access or writing. nil
// stays nil.
func wrap(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redisconn.ErrClosed):
		return fmt.Errorf("redisschedule %s: %w: %w", what, schedule.ErrClosed, err)
	case errors.Is(err, redisconn.ErrIndeterminate), errors.Is(err, redisconn.ErrUnavailable), errors.Is(err, redisconn.ErrBlocked), errors.Is(err, redisconn.ErrAccess):
		return fmt.Errorf("redisschedule %s: %w: %w", what, schedule.ErrUnavailable, err)
	}
	return fmt.Errorf("redisschedule %s: %w", what, err)
}

// flag returns the form of a bool in the arguments of a script: "1" or "".
func flag(is bool) string {
	if is {
		return "1"
	}
	return ""
}

// clip returns s for the log: at most its first 200 bytes, with "?" in place of invalid UTF-8.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}
