package sqlbroker_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}
