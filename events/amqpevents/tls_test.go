package amqpevents_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// The bus works over TLS, and no listener connects to a server with an unknown authority.
func TestTLS(t *testing.T) {
	testserver.Thorough(t) // the tests of internal/amqpconn cover TLS, too, and are faster
	t.Parallel()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnRabbit(t, testserver.RabbitConfig{TLS: files})
	with := func(c *tls.Config) func(*amqpevents.Config) {
		return func(cfg *amqpevents.Config) { cfg.Connect.TLS = c }
	}
	b := open(t, srv.TLSURL(), "tls", with(trusting))
	s := subscribe(t, b, events.Filter{})
	publish(t, b, 1)
	if e := receive(t, s); e.TaskID != started(1).TaskID {
		t.Errorf("received an event of %s, want %s", e.TaskID, started(1).TaskID)
	}

	stranger := open(t, srv.TLSURL(), "tls", with(nil))
	testwait.UntilNil(t, "Subscribe to a server of an unknown authority is ErrUnavailable because of its certificate", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := stranger.Subscribe(ctx, events.Filter{})
		if !errors.Is(err, events.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
}
