package sqlresults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A caller stops after ErrClosed and tries again after ErrUnavailable: every error of the database
// becomes one of the two.
func TestFailure(t *testing.T) {
	for name, c := range map[string]struct{ err, want, not error }{
		"closed":       {sqlconn.ErrClosed, resultstore.ErrClosed, resultstore.ErrUnavailable},
		"no answer":    {sqlconn.ErrIndeterminate, resultstore.ErrUnavailable, resultstore.ErrClosed},
		"full":         {sqlconn.ErrFull, resultstore.ErrUnavailable, resultstore.ErrTooLarge},
		"newer tables": {sqlconn.ErrNewerSchema, resultstore.ErrUnavailable, resultstore.ErrMalformed},
		"stale":        {resultstore.ErrStale, resultstore.ErrStale, resultstore.ErrUnavailable},
		"malformed":    {fmt.Errorf("%w: a place", resultstore.ErrMalformed), resultstore.ErrMalformed, resultstore.ErrUnavailable},
		"none":         {resultstore.ErrNotFound, resultstore.ErrNotFound, resultstore.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := failure("test", c.err)
			if !errors.Is(err, c.want) || errors.Is(err, c.not) || !errors.Is(err, c.err) {
				t.Errorf("failure(%v) is %v, want %v beside it and not %v", c.err, err, c.want, c.not)
			}
		})
	}
}
