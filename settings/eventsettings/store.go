package eventsettings

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// quiet is the time after which an event that has not come back is published again. A bus may
	// lose an event, and a repeated one changes nothing.
	quiet = 2 * time.Second
	// openTimeout limits one attempt to open the stream of events, so that its error is logged.
	openTimeout = 10 * time.Second
)

// Store is a [settings.Store] on an event bus. Make one with [New]. Safe for concurrent use.
type Store struct {
	cfg    Config
	keeper events.Retainer

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
	loaded  chan struct{} // closed when the copy has all events that were retained at the start

	mu      sync.Mutex
	started bool
	closed  bool
	values  map[string]*entry        // the copy, with deleted values
	waiting map[string]chan struct{} // by token: closed when the event has come
	watches map[*func()]struct{}
	tried   map[string]uint64 // by key: the highest revision that this process has published

	changing chan struct{} // has a value while a call of Put or Delete runs
}

// Get implements [settings.Store]: it returns a value of the copy that this process has. The first
// call starts reading the bus and waits until the copy is complete. Returns [settings.ErrNotFound]
// if the key has no value, [settings.ErrBad] for an invalid key, and the errors of ready. It takes
// s.mu, but not while it waits.
func (s *Store) Get(ctx context.Context, key string) (settings.Value, error) {
	if err := settings.CheckKey(key); err != nil {
		return settings.Value{}, err
	}
	if err := s.ready(ctx); err != nil {
		return settings.Value{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.values[key]
	if e == nil || e.deleted {
		return settings.Value{}, settings.ErrNotFound
	}
	return settings.Value{Key: key, Data: slices.Clone(e.data), Revision: e.revision}, nil
}

// List implements [settings.Store]: it returns the values of the copy that this process has, sorted
// by key. The first call starts reading the bus and waits until the copy is complete. Returns the
// errors of ready. It takes s.mu, but not while it waits.
func (s *Store) List(ctx context.Context, prefix string) ([]settings.Value, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []settings.Value
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if e := s.values[key]; !e.deleted && strings.HasPrefix(key, prefix) {
			all = append(all, settings.Value{Key: key, Data: slices.Clone(e.data), Revision: e.revision})
		}
	}
	return all, nil
}

// Put implements [settings.Store]: it publishes the change as an event, and again every two
// seconds, until the event has come back from the bus. It returns the errors of change. See the
// package comment about concurrent changes.
func (s *Store) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if err := settings.CheckPut(key, data); err != nil {
		return 0, err
	}
	return s.change(ctx, key, revision, &entry{data: slices.Clone(data)})
}

// Delete implements [settings.Store]: it publishes the deletion as an event, and again every two
// seconds, until the event has come back from the bus. Returns [settings.ErrConflict] for revision
// 0, and the errors of change.
func (s *Store) Delete(ctx context.Context, key string, revision uint64) error {
	if err := settings.CheckKey(key); err != nil {
		return err
	}
	if revision == 0 {
		return settings.ErrConflict
	}
	_, err := s.change(ctx, key, revision, &entry{deleted: true})
	return err
}

// Watch implements [settings.Store]: it registers changed and starts reading the bus. Each call of
// changed has a goroutine of its own. stop removes the registration. After Close, changed is never
// called. It takes s.mu.
func (s *Store) Watch(changed func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	s.watches[&changed] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, &changed)
	}
}

// Close implements [settings.Store]: it ends waiting calls and watches, stops reading the bus, and
// leaves the bus open. It waits for the goroutines. Returns an error that wraps the cause of ctx if
// ctx ends first. It takes s.mu, but not while it waits.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	clear(s.watches)
	s.mu.Unlock()
	s.end()
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("eventsettings: closing: %w", context.Cause(ctx))
	}
}

// start starts the goroutines that read the bus and renew values, unless they were started or the
// store is closed. Call it with s.mu held.
func (s *Store) start() {
	if s.started || s.closed {
		return
	}
	s.started = true
	s.running.Go(s.follow)
	s.running.Go(s.renew)
}

// ready starts reading the bus and waits until the copy is complete. Returns
// [settings.ErrUnavailable] if ctx ends first, and after Close. It takes s.mu, but not while it
// waits.
func (s *Store) ready(ctx context.Context) error {
	s.mu.Lock()
	s.start()
	s.mu.Unlock()
	if s.life.Err() != nil {
		return fmt.Errorf("eventsettings: %w: the store is closed", settings.ErrUnavailable)
	}
	if err := settings.Ended(ctx); err != nil {
		return err
	}
	select {
	case <-s.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("eventsettings: %w: the settings cannot be read: %w", settings.ErrUnavailable, context.Cause(ctx))
	case <-s.life.Done():
		return fmt.Errorf("eventsettings: %w: the store is closed", settings.ErrUnavailable)
	}
}

// change publishes next as the successor of the value of key, which must have this revision, and
// waits for its event. 0 means that the key must have no value. It sets revision and writer of
// next, and returns the new revision. One call runs at a time, and others wait for it. It takes
// s.mu, but not while it waits.
//
// Returns the errors of ready, allowed and send, and [settings.ErrConflict] if another process was
// first. After [settings.ErrUnavailable] the value may have changed.
func (s *Store) change(ctx context.Context, key string, revision uint64, next *entry) (uint64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	select { // changes of this process follow each other, so that they conflict as they should
	case s.changing <- struct{}{}:
		defer func() { <-s.changing }()
	case <-ctx.Done():
		return 0, settings.Ended(ctx)
	}
	s.mu.Lock()
	have := s.values[key]
	err := s.allowed(have, revision)
	if err == nil {
		if have != nil {
			next.revision = have.revision
		}
		// an earlier change without an answer may still come
		next.revision = max(next.revision, s.tried[key]) + 1
		next.writer = s.cfg.NodeID
		s.tried[key] = next.revision
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	token := rand.Text()
	if err := s.send(ctx, next.event(s.cfg.NodeID, key, token), token); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !next.same(s.values[key]) {
		return 0, settings.ErrConflict // another process was first, or wins
	}
	return next.revision, nil
}

// allowed returns nil if have, the present entry of a key or nil, has this revision and may be
// changed. A missing or deleted value has revision 0. Returns [settings.ErrConflict] for another
// revision, and [settings.ErrFull] if a new value would exceed MaxKeys. Call it with s.mu held.
func (s *Store) allowed(have *entry, revision uint64) error {
	present := uint64(0)
	if have != nil && !have.deleted {
		present = have.revision
	}
	if present != revision {
		return settings.ErrConflict
	}
	if revision > 0 {
		return nil
	}
	n := 0
	for _, e := range s.values {
		if !e.deleted {
			n++
		}
	}
	if n >= MaxKeys {
		return settings.ErrFull
	}
	return nil
}

// send publishes e, which carries token, and again after each quiet time, until e has come back
// from the bus. Returns [settings.ErrUnavailable] if ctx ends first, after Close, and for an error
// of the bus. It takes s.mu, but not while it waits.
func (s *Store) send(ctx context.Context, e events.Event, token string) error {
	came := make(chan struct{})
	s.mu.Lock()
	s.waiting[token] = came
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, token)
		s.mu.Unlock()
	}()
	again := time.NewTicker(quiet)
	defer again.Stop()
	for {
		if err := s.cfg.Events.Publish(ctx, e); err != nil {
			return fmt.Errorf("eventsettings: %w: %w", settings.ErrUnavailable, err)
		}
		select {
		case <-came:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("eventsettings: %w: the bus did not confirm the change: %w", settings.ErrUnavailable, context.Cause(ctx))
		case <-s.life.Done():
			return fmt.Errorf("eventsettings: %w: the store is closed", settings.ErrUnavailable)
		}
	}
}

// follow is the body of a goroutine: it reads the bus until Close of the store or the bus. After
// another error it waits and reads the bus again from the start, which changes nothing for events
// that it knows. It logs the first error of a series.
func (s *Store) follow() {
	var gap task.Backoff
	for failures := 0; s.life.Err() == nil; failures++ {
		err := s.readAll(func() { failures = 0 })
		if s.life.Err() != nil || errors.Is(err, events.ErrClosed) {
			return
		}
		if failures == 0 {
			s.cfg.Logger.LogAttrs(s.life, slog.LevelWarn, "the settings cannot be read from the event bus; reading is repeated", slog.Any("error", err))
		}
		wake.Sleep(s.life, gap.Interval(failures))
	}
}

// readAll reads the retained events and then new ones, and applies each to the copy. It calls
// opened when the stream is open, and starts mark on a goroutine. It returns an error of the bus,
// or the error of s.life after Close.
func (s *Store) readAll(opened func()) error {
	opening, cancel := context.WithTimeout(s.life, openTimeout)
	stream, err := s.keeper.Replay(opening, events.Filter{Types: []string{eventType}}, time.Time{})
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		_ = stream.Close(ctx) // the bus closes it at the latest
	}()
	opened()
	marking, marked := context.WithCancel(s.life)
	defer marked()
	s.running.Go(func() { s.mark(marking) })
	for {
		e, err := stream.Receive(s.life)
		if err != nil {
			return err
		}
		s.apply(&e)
	}
}

// mark publishes an event without a change and waits until it has come back. All events that were
// retained before have then come, too. So mark closes s.loaded and calls the watches. If ctx ends
// first it does nothing. It takes s.mu, but not while it waits.
func (s *Store) mark(ctx context.Context) {
	token := rand.Text()
	if s.send(ctx, (&entry{}).event(s.cfg.NodeID, "", token), token) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.loaded:
	default:
		close(s.loaded)
	}
	s.notify()
}

// apply adds an event to the copy, wakes the call that waits for it, and calls the watches if a
// value has changed. It takes s.mu.
func (s *Store) apply(ev *events.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key, e, ok := read(ev); ok {
		have := s.values[key]
		switch {
		case e.same(have):
			if e.sent.After(have.sent) {
				have.sent, have.again = e.sent, false
			}
		case e.over(have):
			s.values[key] = e
			s.notify()
		case have.deleted && e.sent.After(have.sent): // a process that has missed the deletion
			have.again = true
		}
	}
	token, _ := ev.Fields[fieldToken].(string)
	if came := s.waiting[token]; came != nil {
		close(came)
		delete(s.waiting, token)
	}
}

// notify calls each watch on a goroutine of its own. It calls none while the copy is read for the
// first time. Call it with s.mu held.
func (s *Store) notify() {
	select {
	case <-s.loaded:
	default:
		return
	}
	for changed := range s.watches {
		go (*changed)()
	}
}

// renew is the body of a goroutine: until Close it publishes the values again whose last event is
// older than half of Config.Age, so that the bus keeps them. It also publishes a deletion again
// that another process has missed, and forgets deleted values after twice the age. Processes begin
// at different times, so that usually one of them renews a value. It takes s.mu, but not while it
// publishes.
func (s *Store) renew() {
	for wake.Sleep(s.life, s.cfg.Age/16+mathrand.N(s.cfg.Age/16+1)) {
		now := time.Now()
		s.mu.Lock()
		var due []events.Event
		for key, e := range s.values {
			switch age := now.Sub(e.sent); {
			case e.again, !e.deleted && age > s.cfg.Age/2:
				due = append(due, e.event(s.cfg.NodeID, key, ""))
			case e.deleted && age > 2*s.cfg.Age:
				delete(s.values, key) // no event of an older state is left
			}
		}
		s.mu.Unlock()
		for _, e := range due {
			if err := s.cfg.Events.Publish(s.life, e); err != nil {
				break // tried again next time
			}
		}
	}
}
