// Package archtest checks the architecture of the module. Its tests check which packages import
// each other, which third-party modules each package may link, and rules of style that a compiler
// does not check. The tables in rules.go hold the rules. DESIGN.md gives the reasons, and
// .golangci.yml repeats the rules that a linter can show in an editor.
//
// A failure names the package or line and the broken rule. A package without a rule is a failure
// too: add a row for it.
package archtest
