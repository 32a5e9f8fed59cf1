package faulttest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/raced"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// suite holds the resources that all tests of this package share.
type suite struct {
	soak    string // path of the soak program
	spawner *spawner
}

var shared suite

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// together is the number of engines that run at once. They wait most of the time, so the number may
// exceed the number of processors.
const together = 3

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "swarmiji-soak-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared.soak = filepath.Join(dir, "soak")
	// Omit the debug information, which takes time to link.
	args := append([]string{"build", "-ldflags=-s -w", "-o", shared.soak}, raced.Flags()...)
	build := exec.Command("go", append(args, "github.com/swarmiji/swarmiji/examples/soak")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build examples/soak:", err)
		return 1
	}
	shared.spawner = newSpawner()
	flag.Parse()
	if runtime.GOMAXPROCS(0) < together {
		if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	shared.spawner.end()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction(testserver.Reaper),
			goleak.IgnoreAnyFunction(testserver.ProxyRead), goleak.IgnoreAnyFunction(testserver.ProxyPipe)); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left over:", err)
			return 1
		}
	}
	return code
}
