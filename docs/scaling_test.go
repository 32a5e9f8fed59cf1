package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// metricName matches the name of a metric of Swarmiji.
var metricName = regexp.MustCompile(`\bswarmiji_[a-z_]+\b`)

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
