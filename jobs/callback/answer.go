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

// ErrSkip is returned by a Read for what is no answer, such as the word that a request has arrived: it is acknowledged, and nothing else happens.
var ErrSkip = errors.New("callback: no answer")

// ErrRead is wrapped by the error of an answer that cannot be read, or that no job can be given.
var ErrRead = errors.New("callback: unreadable answer")

// noReason stands for a refusal that gives no reason.
const noReason = "refused without a reason"

// checkAnswer looks at an answer before anybody is asked about it.
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
		return fmt.Errorf("%w: the result is no JSON", ErrRead)
	}
	return nil
}

// contained runs a function of the user. A panic in it is an error.
func contained(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: v}
		}
	}()
	return f()
}

// panicked is the error of a function that panicked.
type panicked struct{ value any }

// Error says what the panic was about.
func (p *panicked) Error() string { return fmt.Sprintf("panic: %.1000v", p.value) }
