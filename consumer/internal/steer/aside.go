package steer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/settings"
)

// Messages of a paused task are moved to a queue of their own. A setting ([settings.AsideOf]) says
// that such a queue may have messages. It is stored before the first message is moved. When the
// pause ends, the consumers move the messages back until the queue is empty. Then they delete the
// setting, if its revision is still the one from before the check.
//
// A consumer may move a message just before it learns that the pause has ended, and another one
// may have found the queue empty already. So each consumer that has moved messages stores the
// setting again when it learns of the end.

// aside names a queue and a task whose messages were moved out of that queue.
type aside struct{ queue, name string }

// Moving stores the setting that messages of a task are moved out of a queue, unless it has done so
// during this pause. Call it before a message is moved. Returns the error of the store. It takes
// s.mu, but not during the call of the store.
func (s *Steer) Moving(ctx context.Context, queue, name string) error {
	since, _ := pausedSince(s.state.Load(), name, time.Now())
	a := aside{queue, name}
	s.mu.Lock()
	at, ok := s.touched[a]
	s.moved[a] = true
	s.mu.Unlock()
	if ok && at.Equal(since) {
		return nil
	}
	if err := s.touch(ctx, a); err != nil {
		return err
	}
	s.mu.Lock()
	s.touched[a] = since
	s.mu.Unlock()
	return nil
}

// Moved notes that messages of a task are in the queue of moved messages. Call it after a message
// was moved there, and after a move back has failed. If the pause has ended meanwhile, it wakes
// Run, which stores the setting of Moving again. It takes s.mu.
func (s *Steer) Moved(queue, name string) {
	s.mu.Lock()
	s.moved[aside{queue, name}] = true
	s.mu.Unlock()
	if !s.TaskPaused(name) {
		s.again.Notify()
	}
}

// touch stores the setting that messages of a were moved, with a new revision. It returns the error
// of the store.
func (s *Steer) touch(ctx context.Context, a aside) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return settings.AsideOf(a.queue, a.name).Set(ctx, s.cfg.Store, settings.Aside{At: time.Now().UTC()})
}

// touchMoved stores the setting of Moving again for each task whose messages this consumer has
// moved and whose pause has ended. After an error, which it logs, the next call stores that
// setting. It takes s.mu, but not during the calls of the store.
func (s *Steer) touchMoved(ctx context.Context) {
	s.mu.Lock()
	var over []aside
	for a := range s.moved {
		if !s.TaskPaused(a.name) {
			over = append(over, a)
			delete(s.moved, a)
			delete(s.touched, a)
		}
	}
	s.mu.Unlock()
	for _, a := range over {
		if err := s.touch(ctx, a); err != nil {
			if ctx.Err() == nil {
				s.cfg.Log(slog.LevelWarn, "it could not be stored that messages were moved; it is tried again", slog.Any("error", err))
			}
			s.mu.Lock()
			s.moved[a] = true
			s.mu.Unlock()
		}
	}
}

// Asides returns the tasks whose messages were moved out of a queue and whose pause has ended. The
// map holds the revisions of their settings by the names of the tasks.
func (s *Steer) Asides(queue string) map[string]uint64 {
	state := s.state.Load()
	var all map[string]uint64
	for key, revision := range state.Aside {
		of, name, _ := strings.Cut(key, "/")
		if of != queue || s.TaskPaused(name) {
			continue
		}
		if all == nil {
			all = make(map[string]uint64)
		}
		all[name] = revision
	}
	return all
}

// emptied deletes the setting that messages of a task were moved out of a queue, if it still has
// this revision. It does nothing if Moved was called after Run last looked: messages that this
// consumer held may be in the queue again. Call it after the queue of moved messages was found
// empty. It takes s.mu, but not during the call of the store.
//
// Returns the error of the store; another revision is not an error.
func (s *Steer) emptied(ctx context.Context, queue, name string, revision uint64) error {
	s.mu.Lock()
	again := s.moved[aside{queue, name}]
	s.mu.Unlock()
	if again {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := s.cfg.Store.Delete(ctx, settings.AsideOf(queue, name).String(), revision)
	if errors.Is(err, settings.ErrConflict) {
		return nil
	}
	return err
}
