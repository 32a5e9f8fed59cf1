package callback

import (
	"encoding/json"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/jobs"
)

// ReadMessage decodes the default format of messages, whatever the message's content type. The
// body is a JSON object with the "name" of the job and the "key". It has either a "result", which
// is any JSON value, or an "error", which is a text and makes the answer a refusal. Other members
// are ignored.
//
//   - An empty "error" counts as missing; so does a "result" of null.
//   - With neither, the result is null.
//
// Returns an error that wraps [ErrRead] for any other body, for both a result and an error, and
// for an invalid name, key or result.
func ReadMessage(m *broker.Message) (jobs.Answer, error) {
	// a map, since the fields of a struct match in any letter case
	var members map[string]json.RawMessage
	if err := json.Unmarshal(m.Body, &members); err != nil || members == nil {
		return jobs.Answer{}, fmt.Errorf("%w: the message is not a JSON object", ErrRead)
	}
	var a jobs.Answer
	for _, text := range []struct {
		member string
		into   *string
	}{{"name", &a.Name}, {"key", &a.Key}, {"error", &a.Refusal}} {
		if raw, ok := members[text.member]; ok {
			if err := json.Unmarshal(raw, text.into); err != nil {
				return jobs.Answer{}, fmt.Errorf("%w: %q is not a text", ErrRead, text.member)
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
