package answers

import (
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/revoke"
)

// Selected reports whether one of the rules matches the task of a deferral of queue. state is the
// stored state of the deferral. A message without a task name has the given name. It returns false
// for a deferral that cannot be read: its task waits for the answer.
func Selected(codec *wire.Codec, queue, name string, state []byte, rules []revoke.Selector) bool {
	kept, err := Read(state)
	if err != nil {
		return false
	}
	e, _, err := codec.Decode(kept.Message.Message)
	if err == nil {
		err = codec.Open(queue, e)
	}
	if err != nil {
		return false
	}
	if e.Name == "" {
		e.Name = name
	}
	for i := range rules {
		if rules[i].Match(queue, e) {
			return true
		}
	}
	return false
}
