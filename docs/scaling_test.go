package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// metricName matches the name of a metric of Swarmiji.
var metricName = regexp.MustCompile(`\bswarmiji_[a-z_]+\b`)

// TestAlertRules shows that the alerts of scaling.md have the right form, and that promtool accepts
// them. Without promtool, only "make thorough", which installs it, fails.
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
	t.Run("promtool", func(t *testing.T) { checkRules(t, "groups:"+rules) })
}

// checkRules fails t if promtool refuses rules.
func checkRules(t *testing.T, rules string) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		testserver.Thorough(t)
		t.Fatal("promtool is missing; SWARMIJI_THOROUGH=1 scripts/setup.sh installs it (Debian: apt-get install prometheus)")
	}
	file := filepath.Join(t.TempDir(), "alerts.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
