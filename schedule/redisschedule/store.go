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

// scripts are what the server executes. Each file says what it takes and returns.
type scripts struct {
	add, due, claim, renew, done, remove, drop, show, pause, resume, astray, claims, mend *redisconn.Script
}

func loadScripts() (*scripts, error) {
	s := &scripts{}
	var errs []error
	for name, to := range map[string]**redisconn.Script{
		"add": &s.add, "due": &s.due, "claim": &s.claim, "renew": &s.renew, "done": &s.done, "remove": &s.remove, "drop": &s.drop,
		"show": &s.show, "pause": &s.pause, "resume": &s.resume, "astray": &s.astray, "claims": &s.claims, "mend": &s.mend,
	} {
		text, err := scriptText(name)
		errs = append(errs, err)
		*to = redisconn.NewScript(text)
	}
	return s, errors.Join(errs...)
}

// scriptText puts a script together: its first line, which may hold flags for the server; layout.lua
// if the script uses it; the rest.
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
	// batch is how many entries or ticks one script deals with: it holds up the server for about a millisecond.
	batch = 256
	// mostBytes bounds the payloads of one answer of Due.
	mostBytes = 8 << 20
)

// Store keeps a schedule in Redis. Make one with [New]. All methods may be called from any goroutine. A call is repeated until the server
// answers or ctx ends, since none does harm if the server has executed it already; only what Add and Done say of it may then be that it was
// there, or was not held any more.
type Store struct {
	c       Config
	conn    *redisconn.Conn
	scripts *scripts
	theirs  layout      // that WorkKit published
	ours    layout      // of what seven fields of UTC cannot say
	checked atomic.Bool // the server's settings were looked at
}

// layout are the keys of entries that lie together, and the hash of what the published layout has
// no place for.
type layout struct{ jobs, next, own string }

func (l *layout) keys() []string { return []string{l.jobs, l.next, l.own} }

// all are the keys of both layouts.
func (s *Store) all() []string { return append(s.theirs.keys(), s.ours.jobs, s.ours.next) }

var (
	_ schedule.Store  = (*Store)(nil)
	_ schedule.Lister = (*Store)(nil)
	_ schedule.Pauser = (*Store)(nil)
	_ schedule.Mender = (*Store)(nil)
	_ schedule.Named  = (*Store)(nil)
)

// Name implements [schedule.Named].
func (s *Store) Name() string { return s.c.Name }

// Close closes the connections. It is idempotent. What is claimed stays so until its lease ends.
func (s *Store) Close(ctx context.Context) error { return s.conn.Close(ctx) }

// Add implements [schedule.Store].
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var errs []error
	places := make([]int, len(entries)) // which layout each goes to
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
	for place, l := range []*layout{&s.theirs, &s.ours} {
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

// add adds some of the entries to a layout.
func (s *Store) add(ctx context.Context, l *layout, entries []schedule.Entry, some []int, added []bool) error {
	args := make([]any, 0, 5*len(some))
	for _, i := range some {
		e := &entries[i]
		args = append(args, e.ID, e.Payload, member(e.ID), e.Next.UnixMilli(), flag(e.AtOnce))
	}
	answers, err := s.each(ctx, "add", s.scripts.add, l.keys(), nil, args, 5)
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
	if len(known) == 0 {
		return nil
	}
	// They have lost their time unless a member of another form, as a claim has, names them.
	if err := s.claimed(ctx, l, ids); err != nil {
		return err
	}
	for _, i := range known {
		if ids[entries[i].ID] {
			if _, err := s.Mend(ctx, entries[i].ID, entries[i].Next); err != nil {
				return err
			}
		}
	}
	return nil
}

// Due implements [schedule.Store].
func (s *Store) Due(ctx context.Context, max int) (schedule.Batch, error) {
	v, err := s.eval(ctx, "due", s.scripts.due, s.all(), max, s.now(), mostBytes)
	if err != nil {
		return schedule.Batch{}, err
	}
	b, dead, err := readDue(v)
	if err == nil {
		err = s.drop(ctx, dead)
	}
	s.check(ctx)
	return b, err
}

// check looks at the server's settings, once.
func (s *Store) check(ctx context.Context) {
	if s.checked.CompareAndSwap(false, true) {
		if _, err := s.conn.CheckSettings(ctx); err != nil {
			s.checked.Store(false) // the next time
		}
	}
}

// dead is a member that nobody can run.
type dead struct{ id, member string }

// drop takes dead members away, if they still are.
func (s *Store) drop(ctx context.Context, list []dead) error {
	if len(list) == 0 {
		return nil
	}
	args := make([]any, 0, 2*len(list))
	for _, d := range list {
		args = append(args, d.id, d.member)
	}
	gone, err := s.yes(ctx, "drop", s.scripts.drop, s.all(), nil, args, 2)
	if err != nil {
		return err
	}
	for i, d := range list {
		if !gone[i] || d.id != "" && isClaim(d.member) { // a claim ends so when its entry was removed
			continue
		}
		s.c.Logger.Warn("redisschedule: dropped a member that names no entry", "schedule", s.c.Name, "member", clip(d.member))
		if s.c.OnDrop != nil {
			s.c.OnDrop(d.member)
		}
	}
	return nil
}

// Claim implements [schedule.Store].
func (s *Store) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, lease)}
	args := make([]any, 0, 9*len(claims))
	for i := range claims {
		c := &claims[i]
		errs = append(errs, c.Check())
		found, score := found(&c.Tick)
		next := ""
		if !c.Next.IsZero() {
			next = strconv.FormatInt(c.Next.UnixMilli(), 10)
		}
		args = append(args, c.ID, found, score, member(c.ID), claimed(&c.Tick, owner), c.Due.UnixMilli(), next, flag(c.Owner != ""), flag(c.Remember))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.yes(ctx, "claim", s.scripts.claim, s.all(), []any{lease.Milliseconds(), s.now()}, args, 9)
}

// Renew implements [schedule.Store].
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := schedule.CheckLease(owner, lease); err != nil {
		return nil, err
	}
	args := make([]any, len(ticks))
	for i := range ticks {
		args[i] = claimed(&ticks[i], owner)
	}
	return s.yes(ctx, "renew", s.scripts.renew, []string{s.theirs.next, s.ours.next}, []any{lease.Milliseconds(), s.now()}, args, 1)
}

// Done implements [schedule.Store].
func (s *Store) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, 0)}
	args := make([]any, 0, 7*len(done))
	for i := range done {
		f := &done[i]
		errs = append(errs, f.Check())
		remove := ""
		if f.Remove {
			remove = "s"
			if fixed(f.Payload) {
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
		args = append(args, f.ID, claimed(&f.Tick, owner), member(f.ID), remove, left, f.State, of)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	till := time.Now().Add(2 * schedule.MaxLease) // generous, since clocks differ
	return s.yes(ctx, "done", s.scripts.done, s.all(), []any{till.UnixMilli()}, args, 7)
}

// Remove implements [schedule.Store].
func (s *Store) Remove(ctx context.Context, id string) (bool, error) {
	n, err := s.number(ctx, "remove", s.scripts.remove, id, member(id))
	return n == 1, err
}

// now is the time that scripts go by; "": the server's.
func (s *Store) now() string {
	if s.c.Clock == nil {
		return ""
	}
	return strconv.FormatInt(s.c.Clock().UnixMilli(), 10)
}

// yes runs a script over a list, and returns of which items it says 1.
func (s *Store) yes(ctx context.Context, what string, script *redisconn.Script, keys []string, head, list []any, width int) ([]bool, error) {
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

// each runs a script over a list of which each item has so many arguments, a batch at a time, and
// returns its character for each.
func (s *Store) each(ctx context.Context, what string, script *redisconn.Script, keys []string, head, list []any, width int) (string, error) {
	if len(list) == 0 {
		_, err := s.conn.Do(ctx, "PING") // a call without anything to do fails as others do
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

// number runs a script about one entry, whose answer is a number.
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

// eval runs a script until there is an answer or ctx ends.
func (s *Store) eval(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) (any, error) {
	for attempt := 0; ; attempt++ {
		v, err := s.conn.Eval(ctx, script, keys, args...)
		if err == nil || !errors.Is(err, redisconn.ErrIndeterminate) || !s.wait(ctx, attempt) {
			return v, wrap(what, err)
		}
	}
}

func (s *Store) wait(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, s.conn.Done(), s.conn.Backoff().Interval(attempt))
}

// wrap puts the port's class beside the connection's error.
func wrap(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redisconn.ErrClosed):
		return fmt.Errorf("redisschedule %s: %w: %w", what, schedule.ErrClosed, err)
	case errors.Is(err, redisconn.ErrIndeterminate), errors.Is(err, redisconn.ErrUnavailable), errors.Is(err, redisconn.ErrBlocked):
		return fmt.Errorf("redisschedule %s: %w: %w", what, schedule.ErrUnavailable, err)
	}
	return fmt.Errorf("redisschedule %s: %w", what, err)
}

func flag(is bool) string {
	if is {
		return "1"
	}
	return ""
}

// clip shortens a text for a log.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}
