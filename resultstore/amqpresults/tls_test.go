package amqpresults_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
)

// The store works over TLS and sends no record to a server with an unknown authority.
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
	with := func(c *tls.Config) func(*amqpresults.Config) {
		return func(cfg *amqpresults.Config) { cfg.Connect.TLS = c }
	}
	s := open(t, srv.TLSURL(), "tls", with(trusting))
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))

	stranger := open(t, srv.TLSURL(), "tls", with(nil))
	testwait.UntilNil(t, "Replies on a server of an unknown authority is ErrUnavailable because of its certificate", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := stranger.Replies(ctx, "node")
		if !errors.Is(err, resultstore.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
}
