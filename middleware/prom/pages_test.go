package prom_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/middleware/gometrics"
	"github.com/swarmiji/swarmiji/middleware/prom"
)

// metricName matches the name of a metric of Swarmiji.
var metricName = regexp.MustCompile(`\bswarmiji_[a-z_]+\b`)

// TestPagesNameMetrics shows that consumers or the exporter show each metric that the pages name.
func TestPagesNameMetrics(t *testing.T) {
	registry := metrics.NewRegistry()
	m := gometrics.NewMetrics(registry)
	m.SetQueue("mail", 1, 1, 1)
	m.SetOldest("mail", 1, time.Now())
	m.OfTask("greet").Wait.Update(1)
	page := httptest.NewServer(prom.Handler(registry))
	defer page.Close()
	known := map[string]bool{}
	for name := range scrape(t, page.URL) {
		known[name] = true
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			known[name+suffix] = strings.HasSuffix(name, "_seconds")
		}
	}
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, name := range metricName.FindAllString(read("cmd", "swarmiji", "internal", "exporter", "exporter.go"), -1) {
		known[name] = true
	}
	found := 0
	for _, page := range []string{"observability.md", "scaling.md"} { // elsewhere they are tables
		for i, line := range strings.Split(read("docs", page), "\n") {
			for _, name := range metricName.FindAllString(line, -1) {
				if found++; !known[name] {
					t.Errorf("%s:%d: there is no metric %s", page, i+1, name)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d names", found)
	}
}
