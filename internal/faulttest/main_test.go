package faulttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// proxyPipe is a function of toxiproxy that may wait for ever to hand on bytes when a fault is taken off a connection that
// has died of it.
const proxyPipe = "github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"

// suite is what all tests of this package share.
type suite struct {
	soak    string // the program
	spawner *spawner
}

var shared suite

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "swarmiji-soak-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared.soak = filepath.Join(dir, "soak")
	args := []string{"build", "-o", shared.soak}
	if raceEnabled { // then the library is watched for races under faults, too
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/swarmiji/swarmiji/examples/soak")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build examples/soak:", err)
		return 1
	}
	shared.spawner = newSpawner()
	code := m.Run()
	shared.spawner.end()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction(testserver.Reaper), goleak.IgnoreAnyFunction(proxyPipe)); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left over:", err)
			return 1
		}
	}
	return code
}
