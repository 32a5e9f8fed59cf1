package consumer_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
)

func TestMain(m *testing.M) {
	if suite.ProcessNode() != "" {
		if err := runMember(); err != nil {
			_, _ = fmt.Fprintln(os.Stdout, err)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func TestRoadInMemory(t *testing.T) {
	t.Parallel() // its cases mostly wait
	endtoend.Run(t, func(t *testing.T) *endtoend.Harness {
		server := membroker.NewServer(membroker.Config{})
		results := memresults.New(memresults.Config{})
		bus := memevents.New(memevents.Config{})
		revocations := memevents.New(memevents.Config{Retain: revoke.Retention()})
		return &endtoend.Harness{
			Broker:      func(*testing.T) broker.Broker { return server.Connect() },
			Results:     func(*testing.T) resultstore.ResultStore { return results.View() },
			Events:      func(*testing.T) events.EventBus { return bus },
			Revocations: func(*testing.T) events.EventBus { return revocations.View() },
			Sever:       func(_ *testing.T, b broker.Broker) { server.Disconnect(b.(*membroker.Broker)) },
		}
	})
}
