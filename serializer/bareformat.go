package serializer

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// BareFormat writes only the arguments of a task, without its envelope. It is for programs that
// know only the queue, such as workers of hworker. Set it in Wire.QueueFormats of a producer. A
// consumer of this module reads such a message with [RawFormat], as the task in QueueConfig.Task.
//
// The message has the task's id, priority and expiry. Name, metadata, headers and reply address are
// lost: the consumer uses its own, and the result must be in a store that the producer can read.
// The zero value is ready to use.
type BareFormat struct{ RawFormat }

// Encode implements [Format]: it returns a message whose body is e.Args, without a header. Returns
// [ErrValue] if losing a part of the envelope would change what happens: successors, a group, a
// burst, conditions, or sealed arguments.
//
// A copy that a consumer sends, for a retry or a delay, is written by [RawFormat], with its header.
func (f BareFormat) Encode(e *task.Envelope) (*broker.Message, error) {
	switch {
	case e.Retries > 0, e.Parked > 0, e.Crashes > 0, e.Life > 0, e.Meta.NotBefore.IsSet():
		return f.RawFormat.Encode(e)
	case len(e.Then) > 0, len(e.Else) > 0, e.Chord != nil, e.Group != "", e.Burst != "", e.Headers[task.HeaderConditions] != "":
		return nil, fmt.Errorf("%w: a bare message cannot have successors, a group, a burst or conditions", ErrValue)
	case strings.HasSuffix(e.ContentType, "+"+CodingSealed):
		return nil, fmt.Errorf("%w: sealed arguments need the name of their task, which a bare message does not have", ErrValue)
	}
	if err := CheckEnvelope(e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, err)
	}
	return NewMessage(e, e.ContentType, e.Args), nil
}
