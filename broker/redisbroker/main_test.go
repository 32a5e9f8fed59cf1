package redisbroker_test

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// testsAtOnce is the number of tests that run at once. They wait for answers and for times, most of
// the time.
const testsAtOnce = 4

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(testsAtOnce)); err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		// A pipe of the proxy library that remains after a connection is cut.
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}
