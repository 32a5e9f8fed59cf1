package serializer

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// BareFormat writes the arguments of a task, and nothing of its envelope: the form for programs
// that know only the queue, such as workers of hworker. Set it in Wire.QueueFormats of a producer. A
// consumer of this module reads such a message with [RawFormat], as the task that QueueConfig.Task
// names.
//
// The message has the task's id, priority and expiry. Name, metadata, headers and reply address are
// not carried: the consumer uses its own, and the result has to be in a store that can be asked for
// it. The zero value is ready.
type BareFormat struct{ RawFormat }

// Encode implements [Format]. It refuses, with [ErrValue], what would be lost and change what
// happens: a successor, a group, conditions, sealed arguments. The copy that a consumer makes, for
// a retry or a delay, has the header of [RawFormat].
func (f BareFormat) Encode(e *task.Envelope) (*broker.Message, error) {
	switch {
	case e.Retries > 0, e.Parked > 0, e.Crashes > 0, e.Life > 0, e.Meta.NotBefore.IsSet():
		return f.RawFormat.Encode(e)
	case len(e.Then) > 0, len(e.Else) > 0, e.Chord != nil, e.Group != "", e.Headers[task.HeaderConditions] != "":
		return nil, fmt.Errorf("%w: a bare message has no successors, no group and no conditions", ErrValue)
	case strings.HasSuffix(e.ContentType, "+"+CodingSealed):
		return nil, fmt.Errorf("%w: a bare message has no name that sealed arguments are bound to", ErrValue)
	}
	if err := CheckEnvelope(e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, err)
	}
	return NewMessage(e, e.ContentType, e.Args), nil
}
