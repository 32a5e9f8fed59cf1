package archtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/raced"
)

// TestCoreIsLight shows that a program that runs tasks in memory links neither net/http, crypto/tls
// and go-metrics nor any client library.
func TestCoreIsLight(t *testing.T) {
	core := slices.Concat([]string{"task", "producer", "consumer", "middleware", "open"}, sets["memory"])
	for _, p := range packages(t) {
		name, _ := relative(p.ImportPath)
		if !slices.Contains(core, name) {
			continue
		}
		core = slices.DeleteFunc(core, func(s string) bool { return s == name })
		for _, heavy := range append([]string{"net/http", "crypto/tls", "github.com/rcrowley/go-metrics"}, technologies...) {
			if links(p, heavy) {
				t.Errorf("%s links %s", name, heavy)
			}
		}
	}
	if len(core) > 0 {
		t.Errorf("there is no package %v", core)
	}
}

// technologies lists the libraries that are, or connect to, one kind of server.
var technologies = []string{
	"github.com/rabbitmq/amqp091-go", "github.com/redis/go-redis/v9", "github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2",
	"github.com/jackc/pgx/v5", "modernc.org/sqlite",
}

// TestDrivers shows that each package below open, and each engine of SQL, links its own technology
// and no other.
func TestDrivers(t *testing.T) {
	want := map[string][]string{
		"open/amqp": {technologies[0]}, "open/redis": {technologies[1]}, "open/hworker": {technologies[1]}, "open/nats": {technologies[2]},
		"open/natsembedded": {technologies[2], technologies[3]}, "open/postgres": {technologies[4]}, "open/sqlite": {technologies[5]},
		"open/all":       technologies,
		"sqldb/postgres": {technologies[4]}, "sqldb/sqlite": {technologies[5]}, "sqldb": nil,
		"jobs/sqljobs": nil, "schedule/sqlschedule": nil, "resultstore/sqlresults": nil, "broker/sqlbroker": nil,
		"events/sqlevents": nil, "limit/sqllimit": nil,
	}
	for _, p := range packages(t) {
		name, _ := relative(p.ImportPath)
		own, ok := want[name]
		if !ok {
			continue
		}
		delete(want, name)
		for _, tech := range technologies {
			if got := links(p, tech); got != slices.Contains(own, tech) {
				t.Errorf("%s links %s: %t", name, tech, got)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no package %v", want)
	}
}

// TestZonesBelongToPrograms shows that the programs that run schedules or jobs embed the time
// zones, for machines without zone files, and that no other package does. Zones have 0.4 MB.
func TestZonesBelongToPrograms(t *testing.T) {
	want := []string{"cmd/swarmiji", "examples/callback", "examples/jobs", "examples/schedule"}
	var got []string
	for _, p := range packages(t) {
		if name, _ := relative(p.ImportPath); links(p, "time/tzdata") {
			got = append(got, name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%v embed the time zones, want %v", got, want)
	}
}

// links reports whether p links a package or a module.
func links(p pkg, path string) bool {
	return slices.ContainsFunc(p.Deps, func(dep string) bool { return dep == path || strings.HasPrefix(dep, path+"/") })
}

// TestSizes shows that two binaries stay small: a program in memory, and one that imports only
// Redis. A test with the race detector builds them with it, so that nothing is compiled for them
// alone. They are larger then, in proportion to the same code.
func TestSizes(t *testing.T) {
	limits := map[string]int64{"memory": 12_000_000, "redis": 17_300_000}
	if raced.Enabled {
		limits = map[string]int64{"memory": 11_000_000, "redis": 22_100_000}
	}
	for program, most := range limits {
		t.Run(program, func(t *testing.T) {
			ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
			defer stop()
			file := filepath.Join(t.TempDir(), program)
			args := append([]string{"build", "-o", file}, raced.Flags()...)
			cmd := exec.CommandContext(ctx, "go", append(args, "./internal/archtest/testdata/"+program)...)
			cmd.Dir = rootDir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s has %.1f MB", program, float64(info.Size())/1e6)
			if info.Size() > most {
				t.Errorf("%s has %d bytes, more than %d: find what it links with go tool nm -size", program, info.Size(), most)
			}
		})
	}
}
