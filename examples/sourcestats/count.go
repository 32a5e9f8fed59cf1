package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
)

// File names a Go file to count. A task carries the path, not the contents: all processes are on
// one machine, and a task should be small. Consumers on other machines would need a shared file
// system, or the contents.
type File struct {
	Path string // absolute
}

// Stats holds the counts of one file.
type Stats struct {
	Lines     int // line feeds, as wc -l counts
	Functions int // declarations of functions and methods
	Longest   Func
}

// Func is a function and its length. The zero value means no function.
type Func struct {
	Name  string `json:"name"` // with its receiver's type, such as (*Buffer).Write
	File  string `json:"file"` // relative to the root, with slashes
	Lines int    `json:"lines"`
}

// Totals holds the counts of many files.
type Totals struct {
	Files     int  `json:"files"`
	Lines     int  `json:"lines"`
	Functions int  `json:"functions"`
	Longest   Func `json:"longest"`
}

// add adds one file to t. The order of files does not matter: among functions of equal length the
// first by name counts.
func (t *Totals) add(s Stats) {
	t.Files++
	t.Lines += s.Lines
	t.Functions += s.Functions
	if s.Longest.compare(t.Longest) < 0 {
		t.Longest = s.Longest
	}
}

// compare orders functions: the longest first, then by file and name.
func (f Func) compare(g Func) int {
	return cmp.Or(cmp.Compare(g.Lines, f.Lines), cmp.Compare(f.File, g.File), cmp.Compare(f.Name, g.Name))
}

// count reads and counts one file. Consumers and -local use the same function.
func count(f File) (Stats, error) {
	src, err := os.ReadFile(f.Path)
	if err != nil {
		return Stats{}, err
	}
	return countSource(src), nil
}

// countSource counts a file's contents. Some files below testdata are deliberately invalid Go.
// Their lines are counted, but not their functions, because a parser's result for an invalid file
// is not reliable.
func countSource(src []byte) Stats {
	s := Stats{Lines: bytes.Count(src, []byte("\n"))}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		return s
	}
	// the real line, not that of a //line comment
	line := func(p token.Pos) int { return fset.PositionFor(p, false).Line }
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		s.Functions++
		f := Func{Name: name(fn), Lines: line(fn.End()) - line(fn.Pos()) + 1}
		if f.compare(s.Longest) < 0 {
			s.Longest = f
		}
	}
	return s
}

func name(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	return "(" + types.ExprString(fn.Recv.List[0].Type) + ")." + fn.Name.Name
}
