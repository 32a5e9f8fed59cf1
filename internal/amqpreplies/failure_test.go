package amqpreplies

import (
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A caller stops after ErrClosed. An error of a connection that will be replaced must therefore not
// become ErrClosed.
func TestClosedMeansForGood(t *testing.T) {
	for name, c := range map[string]struct{ err, want, not error }{
		"closed":                {amqpconn.ErrClosed, resultstore.ErrClosed, resultstore.ErrUnavailable},
		"one connection closed": {fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, amqpconn.ErrClosed), resultstore.ErrUnavailable, resultstore.ErrClosed},
		"access":                {amqpconn.ErrAccess, resultstore.ErrUnavailable, resultstore.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			err := failure("test", c.err)
			if !errors.Is(err, c.want) || errors.Is(err, c.not) || !errors.Is(err, c.err) {
				t.Errorf("failure(%v) is %v, want %v beside it and not %v", c.err, err, c.want, c.not)
			}
		})
	}
}
