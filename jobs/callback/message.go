package callback

import (
	"encoding/json"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/jobs"
)

// ReadMessage reads the format of messages that a [Listener] knows by itself, whatever the message's content type: a JSON object with the "name" of the job, the "key", and
// either a "result", which is any JSON value, or an "error", which is a text that is not empty and refuses. With neither the result is null. Other members are passed over.
// An error wraps [ErrRead].
func ReadMessage(m *broker.Message) (jobs.Answer, error) {
	var members map[string]json.RawMessage // not a struct, whose fields would be found in whatever case
	if err := json.Unmarshal(m.Body, &members); err != nil || members == nil {
		return jobs.Answer{}, fmt.Errorf("%w: the message is no JSON object", ErrRead)
	}
	var a jobs.Answer
	for _, text := range []struct {
		member string
		into   *string
	}{{"name", &a.Name}, {"key", &a.Key}, {"error", &a.Refusal}} {
		if raw, ok := members[text.member]; ok {
			if err := json.Unmarshal(raw, text.into); err != nil {
				return jobs.Answer{}, fmt.Errorf("%w: %q is no text", ErrRead, text.member)
			}
		}
	}
	if raw := members["result"]; string(raw) != "null" {
		a.Result = raw
	}
	if a.Refusal != "" && a.Result != nil {
		return jobs.Answer{}, fmt.Errorf("%w: both a result and an error", ErrRead)
	}
	return a, checkAnswer(&a)
}
