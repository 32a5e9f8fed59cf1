package amqpcontrol_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }
