package amqpcontrol_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/celery/amqpcontrol"
	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// restricted returns the URL of a user who has all rights in a virtual host, except those to one
// exchange.
func restricted(t *testing.T, srv *testserver.Rabbit, vhost string, x control.Exchange) string {
	t.Helper()
	u, err := url.Parse(vhost)
	if err != nil {
		t.Fatal(err)
	}
	user, rights := testserver.Namespace(), fmt.Sprintf("^(?!%s$)", x)
	_, err = srv.Eval(testwait.Long(t), fmt.Sprintf(`rabbit_auth_backend_internal:add_user(<<%[1]q>>, <<"secret">>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<%[1]q>>, <<%[2]q>>, <<%[3]q>>, <<%[3]q>>, <<%[3]q>>, <<"test">>)`, user, u.Path[1:], rights))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := srv.Eval(context.Background(), fmt.Sprintf(`rabbit_auth_backend_internal:delete_user(<<%q>>, <<"test">>)`, user)); err != nil {
			t.Error(err)
		}
	})
	u.User = url.UserPassword(user, "secret")
	return u.String()
}

// TestRightsOfOneExchange shows that a user who has no right to one exchange can use the others.
// The log has the refusal once.
func TestRightsOfOneExchange(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	for _, denied := range []control.Exchange{control.Events, control.Commands, control.Replies} {
		vhost := srv.NewVhost(t)
		var log journal
		all := transport(t, vhost)
		some, err := amqpcontrol.New(amqpcontrol.Config{
			Connect: amqpconnect.Config{URLs: []string{restricted(t, srv, vhost, denied)}}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []control.Exchange{control.Events, control.Commands, control.Replies} {
			if x == denied {
				for range 2 {
					if err := some.Publish(testwait.Long(t), &control.Message{Exchange: x, Key: "k", Body: []byte("{}")}); !errors.Is(err, events.ErrUnavailable) {
						t.Errorf("publishing on %v: %v", x, err)
					}
				}
				continue
			}
			box, got := control.Mailbox{Exchange: x, Node: "go@vm"}, make(chan string, 1)
			if x != control.Commands {
				box.Keys = []string{"k"}
			}
			if _, err := all.Listen(testwait.Long(t), box, func(m *control.Message) { got <- string(m.Body) }); err != nil {
				t.Fatal(err)
			}
			if err := some.Publish(testwait.Long(t), &control.Message{Exchange: x, Key: "k", Body: []byte("{}")}); err != nil {
				t.Errorf("without the right to %v, publishing on %v: %v", denied, x, err)
				continue
			}
			<-got
		}
		if n := strings.Count(log.String(), "celery messages refused"); n != 1 {
			t.Errorf("without the right to %v, %d lines about it:\n%s", denied, n, log.String())
		}
		for _, tr := range []interface{ Close(context.Context) error }{all, some} {
			if err := tr.Close(testwait.Long(t)); err != nil {
				t.Error(err)
			}
		}
	}
}
