package redisresults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A caller stops after ErrClosed. An error of a connection that will be replaced must therefore not
// become ErrClosed.
func TestClosedMeansForGood(t *testing.T) {
	for name, c := range map[string]struct{ err, want, not error }{
		"closed":                {redisconn.ErrClosed, resultstore.ErrClosed, resultstore.ErrUnavailable},
		"one connection closed": {fmt.Errorf("%w: %w", redisconn.ErrUnavailable, redisconn.ErrClosed), resultstore.ErrUnavailable, resultstore.ErrClosed},
		"access":                {redisconn.ErrAccess, resultstore.ErrUnavailable, resultstore.ErrClosed},
		"no answer":             {redisconn.ErrIndeterminate, resultstore.ErrUnavailable, resultstore.ErrClosed},
		"no memory":             {redisconn.ErrBlocked, resultstore.ErrUnavailable, resultstore.ErrClosed},
		"stale":                 {resultstore.ErrStale, resultstore.ErrStale, resultstore.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := failure("test", c.err)
			if !errors.Is(err, c.want) || errors.Is(err, c.not) || !errors.Is(err, c.err) {
				t.Errorf("failure(%v) is %v, want %v beside it and not %v", c.err, err, c.want, c.not)
			}
		})
	}
}
