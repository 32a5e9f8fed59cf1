package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
	"github.com/swarmiji/swarmiji/middleware/prom"
)

// metricName matches the name of a metric of Swarmiji.
var metricName = regexp.MustCompile(`\bswarmiji_[a-z_]+\b`)

// exported returns the names of the metrics that consumers and the exporter show.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	registry := metrics.NewRegistry()
	m := gometrics.NewMetrics(registry)
	m.SetQueue("mail", 1, 1, 1)
	m.SetOldest("mail", 1, time.Now())
	m.OfQueue("mail").Wait.Update(1)
	m.OfTask("greet").Wait.Update(1)
	names := map[string]bool{}
	gather := prometheus.NewRegistry()
	gather.MustRegister(prom.NewCollector(registry))
	families, err := gather.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names[f.GetName()] = true
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			names[f.GetName()+suffix] = strings.HasSuffix(f.GetName(), "_seconds")
		}
	}
	if len(names) < len(middleware.Descriptions()) {
		t.Fatalf("consumers show %d metrics", len(names))
	}
	source, err := os.ReadFile(filepath.Join(root, "cmd", "swarmiji", "queuewatch.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range metricName.FindAllString(string(source), -1) {
		names[name] = true
	}
	return names
}

// TestMetricsExist shows that consumers or the exporter show each metric that the pages name.
func TestMetricsExist(t *testing.T) {
	names := exported(t)
	found := 0
	for _, page := range []string{"observability.md", "scaling.md"} { // elsewhere they are tables
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, name := range metricName.FindAllString(line, -1) {
				if found++; !names[name] {
					t.Errorf("%s:%d: there is no metric %s", page, i+1, name)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d names", found)
	}
}

// TestAlertRules shows that promtool accepts the alerts of scaling.md.
func TestAlertRules(t *testing.T) {
	text, err := os.ReadFile("scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```yaml\ngroups:")
	rules, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("scaling.md has no alert rules")
	}
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	exprs := regexp.MustCompile(`(?m)^        expr: ((?:>-\n(?:          .+\n)+)|.+$)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 5 || len(alerts) != len(exprs) {
		t.Fatalf("%d alerts and %d expressions", len(alerts), len(exprs))
	}
	for i, e := range exprs {
		if strings.Count(e[1], "(") != strings.Count(e[1], ")") || !metricName.MatchString(e[1]) {
			t.Errorf("%s: expression %s", alerts[i][1], e[1])
		}
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing (Debian: apt-get install prometheus); only the form was checked")
	}
	file := filepath.Join(t.TempDir(), "alerts.yml")
	if err := os.WriteFile(file, []byte("groups:"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
