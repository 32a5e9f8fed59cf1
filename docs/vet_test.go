package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/raced"
)

// TestVet shows that go vet accepts the Go code of the pages. Each unit is a package of a module in
// a temporary workspace beside this module.
func TestVet(t *testing.T) {
	all, err := compiledModule()
	if err != nil {
		t.Fatal(err)
	}
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go .*$`).FindString(string(own))
	write("go.work", fmt.Sprintf("%s\nuse (\n.\n%q\n)\n", version, module))
	write("go.mod", "module pages\n"+version+"\n")
	for _, p := range pages(t) {
		for _, u := range units(p) {
			fs := files(all.exports, p, u)
			for _, f := range useAll(t, all, fs) {
				write(filepath.Join(strings.TrimSuffix(fs[0].name, ".go"), f.name), f.code)
			}
		}
	}
	args := append([]string{"vet", "-toolexec=" + filepath.Join(module, "scripts", "tool.sh")}, raced.Flags()...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./...")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// useAll returns fs with a use of each variable that a block declares for its reader alone, because
// vet wants code that compiles.
func useAll(t *testing.T, module *compiled, fs []file) []file {
	t.Helper()
	type use struct {
		at   int
		name string
	}
	uses := map[string][]use{}
	typeCheck(t, module, fs, func(err types.Error) bool {
		name, unused := strings.CutPrefix(err.Msg, "declared and not used: ")
		if at := err.Fset.PositionFor(err.Pos, false); unused {
			uses[at.Filename] = append(uses[at.Filename], use{at.Offset, name})
		}
		return true // TestSnippets reports the others
	})
	all := make([]file, len(fs))
	for i, f := range fs {
		all[i] = f
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, f.name, f.code, parser.SkipObjectResolution)
		if err != nil {
			continue // TestSnippets reports it
		}
		inserted := map[int]string{}
		for _, u := range uses[f.name] {
			pos := set.File(tree.FileStart).Pos(u.at)
			ast.Inspect(tree, func(n ast.Node) bool {
				if s, ok := n.(*ast.AssignStmt); ok && s.Pos() <= pos && pos < s.Lhs[len(s.Lhs)-1].End() {
					inserted[set.PositionFor(s.End(), false).Offset] += "; _ = &" + u.name
				}
				return true
			})
		}
		var code strings.Builder
		for at := range len(f.code) {
			code.WriteString(inserted[at])
			code.WriteByte(f.code[at])
		}
		all[i].code = code.String()
	}
	return all
}
