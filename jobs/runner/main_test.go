package runner_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestMain(m *testing.M) {
	if suite.ProcessNode() != "" {
		run := member
		if os.Getenv(memberPart) == "answers" {
			run = asker
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stdout, err)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}
