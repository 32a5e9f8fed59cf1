package callback

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// ErrSkip is the error with which Read marks input that is not an answer, such as a notice that a
// request has arrived. The input is acknowledged and has no other effect.
var ErrSkip = errors.New("callback: not an answer")

// ErrRead is wrapped by the errors of answers that cannot be decoded or that no job can receive.
var ErrRead = errors.New("callback: unreadable answer")

// noReason is the reason of a refusal that names no reason.
const noReason = "refused without a reason"

// checkAnswer returns an error that wraps ErrRead if an answer is invalid, and nil otherwise. It
// reads no job. An answer is invalid in these cases:
//
//   - The name is not valid (jobstore.CheckName).
//   - The key is empty, longer than MaxKey, not UTF-8, or contains a NUL.
//   - The result is longer than MaxData, not JSON or not UTF-8. nil is valid, and the result of a
//     refusal is not checked.
func checkAnswer(a *jobs.Answer) error {
	if err := jobstore.CheckName(a.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrRead, err)
	}
	if a.Key == "" || len(a.Key) > jobs.MaxKey || !utf8.ValidString(a.Key) || strings.IndexByte(a.Key, 0) >= 0 {
		return fmt.Errorf("%w: the key is not 1 to %d bytes of text", ErrRead, jobs.MaxKey)
	}
	if a.Refusal != "" {
		return nil
	}
	if len(a.Result) > jobs.MaxData {
		return fmt.Errorf("%w: a result of %d bytes, more than %d", ErrRead, len(a.Result), jobs.MaxData)
	}
	if a.Result != nil && (!json.Valid(a.Result) || !utf8.Valid(a.Result)) {
		return fmt.Errorf("%w: the result is not JSON", ErrRead)
	}
	return nil
}
