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

// Leave ends a call of SettleTx.
func (s *State) Leave() { s.phase.CompareAndSwap(busy, idle) }

// Acknowledge calls ack, which acknowledges the message in the transaction with the end e. From
// then on Close returns an End, unless ack returns [broker.ErrUnsupported]. It does not call ack if
// Close was called, and returns [task.ErrNoSettler]. Otherwise it returns the error of ack.
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
// transaction has stored if it is committed. Returns nil if no transaction may have acknowledged
// the message.
func (s *State) Close() *End {
	s.phase.Store(closed)
	return s.end.Load()
}
