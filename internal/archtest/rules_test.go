package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// These tests show that each rule finds the faults that it is for, and accepts correct code.

func TestCheckImportsFinds(t *testing.T) {
	const m = module + "/"
	const amqp = "github.com/rabbitmq/amqp091-go"
	tests := []struct {
		name string
		p    pkg
		want string // part of the only complaint; "": no complaint
	}{
		{"port on its leaves", pkg{ImportPath: m + "task", Imports: []string{"time", m + "internal/naming"}}, ""},
		{"port on port", pkg{ImportPath: m + "task", Imports: []string{m + "broker"}}, "task (L0) imports broker"},
		{"core on adapter", pkg{ImportPath: m + "producer", Imports: []string{m + "broker/membroker"}}, "producer (L4) imports broker/membroker"},
		{"producer on consumer", pkg{ImportPath: m + "producer", Imports: []string{m + "consumer"}}, "producer (L4) imports consumer"},
		{"adapter on adapter", pkg{ImportPath: m + "resultstore/amqpresults", Imports: []string{m + "broker/amqpbroker"}}, "may import"},
		{"adapter on its client", pkg{ImportPath: m + "broker/amqpbroker", Imports: []string{amqp, m + "internal/amqpconn"}}, ""},
		{"client elsewhere", pkg{ImportPath: m + "consumer", Imports: []string{amqp}}, "AMQP stays inside"},
		{"client in the tests of another", pkg{ImportPath: m + "consumer", XTestImports: []string{amqp}}, "AMQP stays inside"},
		{"client at second hand", pkg{ImportPath: m + "broker/membroker", Deps: []string{m + "internal/amqpconn", amqp, amqp + "/internal"}}, "broker/membroker links " + amqp},
		{"program at second hand", pkg{ImportPath: m + "examples/worker", Deps: []string{amqp}}, ""},
		{"unknown module", pkg{ImportPath: m + "consumer", Imports: []string{"example.com/clever"}}, "no row of clients"},
		{"unknown package", pkg{ImportPath: m + "internal/misc"}, "no rule knows"},
		{"suite in a test", pkg{ImportPath: m + "broker/membroker", XTestImports: []string{m + "broker/brokertest"}}, ""},
		{"suite in a program", pkg{ImportPath: m + "open", Imports: []string{m + "broker/brokertest"}}, "imports the suite"},
		{"test library in a test", pkg{ImportPath: m + "task", TestImports: []string{"pgregory.net/rapid"}}, ""},
		{"test library in a program", pkg{ImportPath: m + "task", Imports: []string{"pgregory.net/rapid"}}, "it is for tests"},
		{"testing in a program", pkg{ImportPath: m + "task", Imports: []string{"testing"}}, "no program may link it"},
		{"testing in a suite", pkg{ImportPath: m + "broker/brokertest", Imports: []string{"testing", m + "broker"}}, ""},
		{"a program in a test", pkg{ImportPath: m + "task", XTestImports: []string{m + "examples/quickstart"}}, "not for import"},
		{"a test server in an example", pkg{ImportPath: m + "examples/soak", Imports: []string{m + "internal/testserver"}}, ""},
		{"a test server in a tool", pkg{ImportPath: m + "cmd/swarmiji", Imports: []string{m + "internal/testserver"}}, "cmd/swarmiji (L5) imports internal/testserver"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, checkImports(tt.p), tt.want) })
	}
}

func TestSourceChecksFind(t *testing.T) {
	capabilities := func(s *source) []string {
		return s.checkAssertions(map[string]bool{"events.Retainer": true, "p.Port": true})
	}
	driver := func(s *source) []string {
		s.rel = "open/redis"
		return s.checkInit()
	}
	suite := func(s *source) []string {
		s.rel = "jobs/jobstest"
		return s.checkSize()
	}
	const head = "// Package p is an example.\npackage p\n"
	const inside = head + "import \"" + module + "/internal/ring\"\n"
	tests := []struct {
		name, src, want string
		check           func(*source) []string
	}{
		{"init", head + "func init() {}", "init function", (*source).checkInit},
		{"init of a driver that does more", head + "import \"" + module + "/open\"\nfunc init() { open.Register(nil); println() }", "init function", driver},
		{"init of a driver", head + "import \"" + module + "/open\"\nfunc init() { open.Register(nil) }", "", driver},
		{"method called init", head + "type t int\nfunc (t) init() {}", "", (*source).checkInit},
		{"short file", head, "", (*source).checkLength},
		{"long file", head + strings.Repeat("\n", maxLines), "lines; a file", (*source).checkLength},
		{"package of the largest size", strings.Repeat("\n", maxPackageLines-2) + head, "", (*source).checkSize},
		{"large package", strings.Repeat("\n", maxPackageLines) + head, "lines; a package", (*source).checkSize},
		{"large suite", strings.Repeat("\n", maxPackageLines) + head, "", suite},

		{"documented", head + "// F is.\nfunc F() {}\n// T is.\ntype T int\n// M is.\nfunc (T) M() {}\n// The ones.\nconst (\nA = 1\nB = 2\n)", "", (*source).checkDocs},
		{"no package comment", "package p", "no package comment", (*source).checkDocs},
		{"function", head + "func F() {}", "exported F has no", (*source).checkDocs},
		{"generic method", head + "// T is.\ntype T[A, B any] struct{}\nfunc (t *T[A, B]) M() {}", "exported M has no", (*source).checkDocs},
		{"method nobody sees", head + "type t struct{}\nfunc (t) M() {}", "", (*source).checkDocs},
		{"type in a group", head + "// All.\ntype (\nT int\n)", "exported T has no", (*source).checkDocs},
		{"constant", head + "const C = 1", "exported C has no", (*source).checkDocs},
		{"constant, comment behind", head + "const C = 1 // is one", "", (*source).checkDocs},
		{"program", "// Command p is.\npackage main\nfunc F() {}", "", (*source).checkDocs},

		{"log attribute", head + "import \"log/slog\"\nvar a = slog.String(\"task_id\", \"1\")", "", (*source).checkLogKeys},
		{"log attribute of another name", head + "import \"log/slog\"\nvar a = slog.String(\"id\", \"1\")", "\"task_id\" everywhere else", (*source).checkLogKeys},

		{"field of an internal type", inside + "// C is.\ntype C struct{ T ring.T }", "exported C shows ring.T", (*source).checkExposed},
		{"embedded internal type", inside + "// C is.\ntype C struct{ *ring.T }", "exported C shows ring.T", (*source).checkExposed},
		{"alias of an internal type", inside + "// C is.\ntype C = ring.T", "exported C shows ring.T", (*source).checkExposed},
		{"argument of an internal type", inside + "// F is.\nfunc F(func(...[]ring.T)) {}", "exported F shows ring.T", (*source).checkExposed},
		{"result of an internal type", inside + "// C is.\ntype C int\n// F is.\nfunc (*C) F() map[string]ring.T { return nil }", "exported F shows ring.T", (*source).checkExposed},
		{"method of an interface", inside + "// I is.\ntype I interface{ F() ring.T }", "exported I shows ring.T", (*source).checkExposed},
		{"variable of an internal type", inside + "// V is.\nvar V *ring.T", "exported V shows ring.T", (*source).checkExposed},
		{"field nobody sees", inside + "// C is.\ntype C struct{ t ring.T; f func(ring.T) }", "", (*source).checkExposed},
		{"method of a type nobody sees", inside + "type c int\nfunc (c) F() ring.T { return nil }", "", (*source).checkExposed},
		{"internal type in a body", inside + "// F is.\nfunc F() { var t ring.T; _ = t }", "", (*source).checkExposed},
		{"type of a public package", head + "import \"time\"\n// C is.\ntype C struct{ T time.Time }", "", (*source).checkExposed},

		{"interface check", head + "import \"io\"\nvar _ io.Reader = (*r)(nil)\ntype r struct{ io.Reader }", "", (*source).checkVars},
		{"error", head + "import \"errors\"\nvar ErrA = errors.New(\"a\")", "", (*source).checkVars},
		{"error that is replaced", head + "import \"errors\"\nvar ErrA = errors.New(\"a\")\nfunc f() { ErrA = nil }", "ErrA is written to", (*source).checkVars},
		{"table", head + "var names = []string{\"a\"}\nfunc f() string { return names[0] }", "", (*source).checkVars},
		{"exported table", head + "var Names = []string{\"a\"}", "Names can change", (*source).checkVars},
		{"table with an element set", head + "var m = map[string]int{}\nfunc f() { m[\"a\"] = 1 }", "m is written to", (*source).checkVars},
		{"table with an element counted", head + "var m = map[string]int{}\nfunc f() { m[\"a\"]++ }", "m is written to", (*source).checkVars},
		{"table with an element deleted", head + "var m = map[string]int{}\nfunc f() { delete(m, \"a\") }", "m is written to", (*source).checkVars},
		{"address of a table's element", head + "var a = [2]int{}\nfunc f() *int { return &a[0] }", "a is written to", (*source).checkVars},
		{"local variable of the same name", head + "var m = map[string]int{}\nfunc f() { m := map[string]int{}; m[\"a\"] = 1 }", "", (*source).checkVars},
		{"no value", head + "var state int", "state can change", (*source).checkVars},
		{"mutex", head + "import \"sync\"\nvar mu = sync.Mutex{}", "mu can change", (*source).checkVars},
		{"pool", head + "import \"sync\"\nvar pool = sync.Pool{}\nfunc f() { pool.Put(pool.Get()) }", "", (*source).checkVars},
		{"function", head + "var f = g()\nfunc g() func() { return nil }", "", (*source).checkVars},
		{"function that is replaced", head + "var now = func() int { return 1 }\nfunc f() { now = nil }", "now is written to", (*source).checkVars},
		{"counter", head + "var n = 1\nfunc f() { n++ }", "n is written to", (*source).checkVars},
		{"value of an unknown type", head + "import \"example.com/x\"\nvar v = x.New()", "v can change", (*source).checkVars},
		{"made map", head + "var m = make(map[string]int)", "m can change", (*source).checkVars},
		{"embedded file", head + "import _ \"embed\"\n//go:embed a.txt\nvar text string", "", (*source).checkVars},
		{"shared and there", head + "var state int", "", func(s *source) []string { return s.checkShared(map[string]string{"p.state": "why", "q.other": "why"}) }},
		{"shared and not there", head + "var state int", "names p.other", func(s *source) []string { return s.checkShared(map[string]string{"p.other": "why"}) }},
		{"assertion to a capability", head + "func f(v any) { _, _ = v.(events.Retainer) }", "capability.As[events.Retainer]", capabilities},
		{"switch over capabilities", head + "func f(v any) { switch v.(type) { case int, events.Retainer: } }", "capability.As[events.Retainer]", capabilities},
		{"assertion within the port", head + "func f(v any) { _, _ = v.(Port) }", "capability.As[p.Port]", capabilities},
		{"assertion to something else", head + "func f(v any) { _, _ = v.(events.Event); _, _ = v.(interface{ Retainer() }); _ = v }", "", capabilities},
		{"definition of a task", head + "var add = task.New[int, int](\"add\")", "", (*source).checkVars},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(tt.src), 0o600); err != nil {
				t.Fatal(err)
			}
			name := "p"
			if strings.Contains(tt.src, "package main") {
				name = "main"
			}
			s, err := parse(pkg{Dir: dir, ImportPath: module + "/p", Name: name, GoFiles: []string{"p.go"}})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, tt.check(s), tt.want)
		})
	}
}

func TestCheckTextFinds(t *testing.T) {
	tests := []struct{ name, line, want string }{
		{"home", `open("/home/somebody/x")`, "/home/somebody"},
		{"root's home", "see /root/notes", "/root/notes"},
		{"part of another path", "a/root/b and https://example.com/home/x", ""},
		{"system path", "/usr/lib/rabbitmq/bin", ""},
		{"package host", "curl https://proxy.golang.org/x", "proxy.golang.org"},
		{"module path", "golang.org/x/time v0.16.0", ""},
		{"further text", "in /srv/checkout/x", "/srv/checkout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, checkText("f", []byte(tt.line), "/srv/checkout"), tt.want) })
	}
}

func TestCheckTablesFinds(t *testing.T) {
	const m = module + "/"
	pkgs := []pkg{
		{ImportPath: m + "task"},
		{ImportPath: m + "producer", Imports: []string{m + "task", "example.com/client/sub"}, Deps: []string{"example.com/client/sub"}},
		{ImportPath: m + "open", Imports: []string{m + "producer"}, Deps: []string{"example.com/client/sub"}, TestImports: []string{"testing"}},
		{ImportPath: m + "suite", Imports: []string{"testing"}},
	}
	row := func(pkgs, may []string) tables { return tables{layers: []rule{{pkgs: pkgs, may: may}}} }
	use := func(c client) tables {
		c.path = "example.com/client"
		return tables{clients: []client{c}}
	}
	tests := []struct {
		name string
		t    tables
		want string
	}{
		{"all in use", row([]string{"producer"}, []string{"task"}), ""},
		{"a row of a package that is not there", row([]string{"broker"}, nil), "[broker] names broker"},
		{"a row behind another", tables{layers: []rule{{pkgs: []string{"task"}}, {pkgs: []string{"task", "open"}}}}, "[task open] names task"},
		{"a permission that is not used", row([]string{"producer"}, []string{"task", "open"}), "permits open"},
		{"a permission for tests", row([]string{"open"}, []string{"task"}), "permits task"},
		{"a set of packages that are not there", tables{sets: map[string][]string{"ports": {"task", "broker"}}}, "names broker"},
		{"a client in use", use(client{may: []string{"producer"}, reach: []string{"open"}}), ""},
		{"a client that is not imported", use(client{may: []string{"producer", "task"}}), "permits task"},
		{"a client that is not linked", use(client{may: []string{"producer"}, reach: []string{"task"}}), "reach task"},
		{"a client that is imported, not reached", use(client{may: []string{"producer"}, reach: []string{"producer"}}), "reach producer"},
		{"a client for tests that have none", use(client{may: []string{"producer"}, tests: true}), "all tests"},
		{"testing in use", tables{testing: []string{"suite"}}, ""},
		{"testing in tests alone", tables{testing: []string{"open"}}, "testingOnly names open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.t.checkTables(pkgs), tt.want) })
	}
}

func TestMapChecksFind(t *testing.T) {
	pkgs := []pkg{
		{ImportPath: module, Name: "swarmiji"},
		{ImportPath: module + "/task", Name: "task"},
		{ImportPath: module + "/broker", Name: "broker"},
		{ImportPath: module + "/broker/membroker", Name: "membroker"},
		{ImportPath: module + "/cmd/tool", Name: "main"},
	}
	const doc = "//   - task: tasks.\n//     more: of them\n//   - broker, %s: ports.\n"
	const design = "```\ndoc.go         this\ntask/          tasks and/or more\nbroker/        port\n  membroker/ (in memory/in process) %s\ncmd/tool/      a program\n```\nother/  text\n"
	users := forUsers(pkgs)
	expect(t, compare("doc.go", namedInDoc(strings.Replace(doc, ", %s", "", 1)), users, users), "")
	expect(t, compare("doc.go", namedInDoc(strings.Replace(doc, "%s", "events", 1)), users, users), "doc.go names events")
	expect(t, compare("doc.go", namedInDoc("//   - task: tasks.\n"), users, users), "does not name the package broker")
	inDesign := func(text string) []string {
		return compare("the map", namedInDesign(text), parents(pkgs), paths(pkgs))
	}
	expect(t, inDesign(strings.Replace(design, "%s", "", 1)), "")
	expect(t, inDesign(strings.Replace(design, "%s", "amqpbroker/", 1)), "names broker/amqpbroker")
	expect(t, inDesign(strings.Replace(design, "  membroker/", "  ", 1)), "does not name the package broker/membroker")

	table := func(row string) string {
		return "\n| layer | packages | may import |\n|---|---|---|\n" + strings.Repeat("| L0 | `task`; `broker` (not `events`) | |\n", 10) + row + "\n\n"
	}
	expect(t, checkLayerTable(table(""), pkgs), "")
	expect(t, checkLayerTable(table("| L5 | `cmd` | |"), pkgs), "")
	expect(t, checkLayerTable(table("| L1 | `broker` | |"), pkgs), "puts broker into L1, rules.go into L0")
	expect(t, checkLayerTable(table("| L0 | `internal/{misc}` | |"), pkgs), "names internal/misc")
	expect(t, checkLayerTable("", pkgs), "no table of layers")

	const lint = "files: [\"**/broker/*.go\", \"!$test\", \"!**/cmd/**/*.go\"]\n- {pkg: " + module + "/task$}\n- {pkg: " + module + "/broker/}\n- {pkg: " + module + "}\n"
	expect(t, checkLint(lint, parents(pkgs)), "")
	expect(t, checkLint(lint+"- {pkg: "+module+"/events, desc: x}", parents(pkgs)), "names events")
	expect(t, checkLint(lint+"files: [\"!**/events/*_test.go\"]", parents(pkgs)), "names events")
}

// expect fails the test unless there is exactly one complaint and it contains want. If want is "",
// it expects no complaint.
func expect(t *testing.T, bad []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(bad) > 0:
		t.Errorf("complaints about what is allowed: %q", bad)
	case want != "" && (len(bad) != 1 || !strings.Contains(bad[0], want)):
		t.Errorf("got %q, want one complaint with %q", bad, want)
	}
}
