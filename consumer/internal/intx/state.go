package intx

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// State is the progress of a task that may settle itself in a transaction. The zero value is ready
// for use. Safe for concurrent use.
type State struct {
	phase atomic.Int32
	end   atomic.Pointer[End] // nil: no transaction may have acknowledged the message
}

const (
	idle   int32 = iota
	busy         // a call of SettleTx is in progress
	closed       // the handler has returned
)

// Enter begins a call of SettleTx. Call Leave after nil. Returns [task.ErrNoSettler] after Close,
// and [broker.ErrSettled] during another call.
func (s *State) Enter() error {
	switch {
	case s.phase.CompareAndSwap(idle, busy):
		return nil
	case s.phase.Load() == closed:
		return fmt.Errorf("%w: the handler has returned", task.ErrNoSettler)
	}
	return fmt.Errorf("%w: another call of SettleTx is in progress", broker.ErrSettled)
}

// Leave ends a call of SettleTx, so that another may begin. After Close it does nothing.
func (s *State) Leave() { s.phase.CompareAndSwap(busy, idle) }

// Acknowledge calls ack, which acknowledges the message in the transaction that stores the end e.
// It returns the error of ack. If Close was called, it does not call ack and returns
// [task.ErrNoSettler].
//
// The first call stores e for Close, even if ack fails, unless ack returns [broker.ErrUnsupported].
// A later call replaces that end if ack succeeds: the earlier transaction was then rolled back. It
// calls RolledBack of the end that can no longer be committed.
func (s *State) Acknowledge(e *End, ack func() error) error {
	first := s.end.CompareAndSwap(nil, e)
	if s.phase.Load() == closed {
		return fmt.Errorf("%w: the handler has returned", task.ErrNoSettler)
	}
	err := ack()
	switch {
	case err == nil && !first:
		s.end.Swap(e).RolledBack() // the earlier transaction was rolled back, else ack would have failed
	case err != nil && !first:
		e.RolledBack()
	case errors.Is(err, broker.ErrUnsupported):
		s.end.Store(nil)
		e.RolledBack()
	}
	return err
}

// Close ends the calls of SettleTx when the handler has returned. It returns the end that the last
// transaction has stored; the caller must find out whether it is committed. Returns nil if no
// transaction can have acknowledged the message.
func (s *State) Close() *End {
	s.phase.Store(closed)
	return s.end.Load()
}
